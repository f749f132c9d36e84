#include "convert/workspaces.h"

#include <stdlib.h>

#include "convert/container.h"

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)

static void destroy(tp_workspace *w)
{
    if (!w) return;
    tp_decoder_destroy(w->decoder);
    free(w->stored);
    free(w->raw);
    free(w);
}

static tp_workspace *create(void)
{
    tp_workspace *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->stored = aligned_alloc(64, TP_STORED_BUFFER);
    w->raw = aligned_alloc(64, TP_FRAME_MAX_RAW);
    if (w->stored && w->raw && tp_decoder_create(&w->decoder) == TP_OK) return w;
    destroy(w);
    return NULL;
}

static tp_workspace *take_from(tp_workspaces *all, size_t slot)
{
    return __atomic_exchange_n(&all->slots[slot].free, NULL, __ATOMIC_ACQUIRE);
}

tp_workspace *tp_workspaces_take(tp_workspaces *all, uint64_t holds)
{
    tp_workspace *w;
    for (size_t i = 0; i < TP_WORKSPACES_KEPT; i++) {
        if (LOAD(all->slots[i].holds) != holds || !LOAD(all->slots[i].free)) continue;
        if ((w = take_from(all, i))) return w;
    }
    /* Each round takes one, or finds that another thread was faster; that ends as soon as nobody comes
     * back. */
    for (;;) {
        size_t oldest = TP_WORKSPACES_KEPT;
        for (size_t i = 0; i < TP_WORKSPACES_KEPT; i++) {
            if (!LOAD(all->slots[i].free)) continue;
            if (oldest == TP_WORKSPACES_KEPT || LOAD(all->slots[i].used) < LOAD(all->slots[oldest].used))
                oldest = i;
        }
        if (oldest == TP_WORKSPACES_KEPT) return create();
        if ((w = take_from(all, oldest))) return w;
    }
}

void tp_workspaces_give(tp_workspaces *all, tp_workspace *w)
{
    uint64_t now = __atomic_add_fetch(&all->clock, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < TP_WORKSPACES_KEPT; i++) {
        tp_workspace *none = NULL;
        if (LOAD(all->slots[i].free)) continue;
        STORE(all->slots[i].holds, w->holds);
        STORE(all->slots[i].used, now);
        if (__atomic_compare_exchange_n(&all->slots[i].free, &none, w, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
            return;
    }
    destroy(w);
}

void tp_workspaces_free(tp_workspaces *all)
{
    for (size_t i = 0; i < TP_WORKSPACES_KEPT; i++) destroy(take_from(all, i));
}
