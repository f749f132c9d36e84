/*
 * Workspaces that the threads of a reader share: what decoding a frame takes, and the frame decoded last,
 * so that small reads that follow each other stay linear. Each thread that reads takes one for a while;
 * there are as many as threads have ever read at once, of which a few are kept.
 *
 * There is no lock. A workspace is in a slot, where nobody touches it, or taken, and changes hands by a
 * single exchange. So no thread waits for another, and a child that was forked while other threads were
 * reading finds nothing locked: what they had taken is lost to it, and nothing else.
 */
#ifndef TP_CONVERT_WORKSPACES_H
#define TP_CONVERT_WORKSPACES_H

#include "tensorpress.h"

typedef struct tp_workspace {
    tp_decoder *decoder;
    uint8_t *stored; /* TP_STORED_BUFFER bytes */
    uint8_t *raw;    /* TP_FRAME_MAX_RAW bytes */
    uint64_t holds;  /* offset of the stored frame that `raw` is, 0: none */
} tp_workspace;

#define TP_WORKSPACES_KEPT 16

/* All zero is empty. */
typedef struct tp_workspaces {
    struct {
        tp_workspace *free;
        /* What it holds and when it was given back: hints, for they may be about another by now. */
        uint64_t holds, used;
    } slots[TP_WORKSPACES_KEPT];
    uint64_t clock;
} tp_workspaces;

/* The one that holds this frame if there is one, else the one used longest ago, or a new one. NULL: no
 * memory. */
tp_workspace *tp_workspaces_take(tp_workspaces *all, uint64_t holds);
void tp_workspaces_give(tp_workspaces *all, tp_workspace *workspace);
/* Frees those that are not taken. */
void tp_workspaces_free(tp_workspaces *all);

#endif
