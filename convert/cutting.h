/*
 * From spans to frames: which bytes of a file go into one frame, and as what class.
 *
 * - A typed span of 1 MiB or more is cut into frames of whole chunks, up to 4 MiB; nothing else enters
 * them.
 * - Smaller typed spans that follow each other in the same class are a run; they share frames as long as
 * they fit whole, so that a net of many small tensors does not pay a header for each. Bytes between them go
 * with them if they are few, and as long as some whole elements.
 * - A run under 4 KiB is not worth a header: it goes, as bytes, with the bytes around it.
 * - Bytes go into frames of up to 4 MiB.
 */
#ifndef TP_CONVERT_CUTTING_H
#define TP_CONVERT_CUTTING_H

#include "formats/formats.h"

#define TP_CUT_OWN ((uint64_t)1 << 20) /* typed spans from this size have frames of their own */
#define TP_CUT_BYTES ((uint64_t)4096)  /* runs below this size are bytes */

typedef struct tp_cutter {
    const tp_span *spans;
    size_t count;
    size_t at;      /* span that the next frame begins in */
    uint64_t done;  /* bytes of it that are cut already */
    size_t stretch; /* spans before this one are known to belong to the current stretch */
    uint8_t cls;    /* class of the current stretch */
    bool own;       /* the current stretch is one large span */
} tp_cutter;

typedef struct tp_cut {
    uint64_t start;
    uint32_t size; /* 1 .. TP_FRAME_MAX_RAW */
    tp_class cls;
} tp_cut;

/* The spans must outlive the cutter. */
void tp_cutter_init(tp_cutter *cutter, const tp_span *spans, size_t count);
/* The next frame; false at the end. */
bool tp_cutter_next(tp_cutter *cutter, tp_cut *cut);

#endif
