#include "convert/cutting.h"

/*
 * A PyTorch checkpoint has 100 to 200 bytes of ZIP headers before each storage, a GGUF file padding. As
 * part of a run they cost less, even as elements that they are not, than a frame's header twice and a table
 * once more.
 */
#define GAP_MAX 256
#define CHUNK_ELEMENTS ((uint64_t)1 << 17)

static bool is_bytes(const tp_span *span)
{
    return span->cls == TP_CLASS_BYTES;
}
static bool is_large(const tp_span *span)
{
    return !is_bytes(span) && span->length >= TP_CUT_OWN;
}

/* A few bytes, of whole elements' length, before another small span of the class. */
static bool is_gap(const tp_cutter *c, size_t at, uint8_t cls)
{
    if (cls == TP_CLASS_BYTES || c->count - at < 2) return false;
    const tp_span *gap = &c->spans[at], *next = gap + 1;
    return is_bytes(gap) && gap->length <= GAP_MAX &&
           gap->length % tp_class_element_size((tp_class)cls) == 0 && next->cls == cls && !is_large(next);
}

/* Spans from `first` that form a run of small spans of one class; *size: their bytes. */
static size_t run_end(const tp_cutter *c, size_t first, uint64_t *size)
{
    size_t end = first;
    *size = 0;
    for (;;) {
        while (end < c->count && !is_large(&c->spans[end]) && c->spans[end].cls == c->spans[first].cls)
            *size += c->spans[end++].length;
        if (!is_gap(c, end, c->spans[first].cls)) return end;
        *size += c->spans[end++].length;
    }
}

/* Finds where the stretch that begins at span `at` ends, and what it is. */
static void begin_stretch(tp_cutter *c)
{
    const tp_span *first = &c->spans[c->at];
    c->own = is_large(first);
    c->cls = first->cls;
    c->stretch = c->at + 1;
    if (c->own) return;
    uint64_t size;
    size_t end = run_end(c, c->at, &size);
    bool bytes = is_bytes(first) || size < TP_CUT_BYTES;
    c->stretch = end;
    if (!bytes) return;
    /* Bytes swallow all that follows up to a run or a span that has frames of its own. Each run is walked
     * twice at most: here and as a stretch. */
    c->cls = TP_CLASS_BYTES;
    while (end < c->count && !is_large(&c->spans[end])) {
        size_t next = run_end(c, end, &size);
        if (!is_bytes(&c->spans[end]) && size >= TP_CUT_BYTES) break;
        end = next;
    }
    c->stretch = end;
}

/* Takes up to `limit` bytes; in a typed run only whole spans (each is smaller than a frame). */
static uint64_t take(tp_cutter *c, uint64_t limit)
{
    bool whole = !c->own && c->cls != TP_CLASS_BYTES;
    uint64_t taken = 0;
    while (c->at < c->stretch && taken < limit) {
        uint64_t left = c->spans[c->at].length - c->done;
        uint64_t part = left < limit - taken ? left : limit - taken;
        if (whole && part < left) break;
        taken += part;
        c->done += part;
        if (part == left) {
            c->at++;
            c->done = 0;
        }
    }
    return taken;
}

void tp_cutter_init(tp_cutter *cutter, const tp_span *spans, size_t count)
{
    *cutter = (tp_cutter){.spans = spans, .count = count};
}

bool tp_cutter_next(tp_cutter *c, tp_cut *cut)
{
    if (c->at == c->count) return false;
    if (c->at == c->stretch) begin_stretch(c);
    uint64_t limit = TP_FRAME_MAX_RAW;
    if (c->own) {
        uint64_t chunk = CHUNK_ELEMENTS * tp_class_element_size((tp_class)c->cls);
        limit = limit / chunk * chunk;
    }
    cut->start = c->spans[c->at].start + c->done;
    cut->cls = (tp_class)c->cls;
    cut->size = (uint32_t)take(c, limit);
    return true;
}
