/* Which kernels run: the best that CPU and operating system offer, found once, or the ones forced. */
#include <stdatomic.h>
#include <string.h>

#include "codec/hash.h"
#include "codec/kernels/kernels.h"
#include "tensorpress.h"

/* In ascending order of preference. */
static const tp_kernels *const built_in[] = {
    &tp_kernels_portable,
#if defined(__x86_64__)
    &tp_kernels_avx2,
    &tp_kernels_avx512bw,
    &tp_kernels_avx512,
#elif defined(__aarch64__)
    &tp_kernels_neon,
#endif
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

static bool available(const tp_kernels *kernels)
{
    if (kernels == &tp_kernels_portable) return true;
#if defined(__x86_64__)
    /* The compiler's runtime also asks the operating system (XCR0) whether it saves the registers. */
    __builtin_cpu_init();
    /* each needs what the ones before it do */
    bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    if (kernels == &tp_kernels_avx2) return has;
    has = has && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (kernels == &tp_kernels_avx512bw) return has;
    has = has && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
          __builtin_cpu_supports("avx512bitalg");
    if (kernels == &tp_kernels_avx512) return has;
#elif defined(__aarch64__)
    if (kernels == &tp_kernels_neon) return true; /* part of the base instruction set */
#endif
    return false;
}

static _Atomic(const tp_kernels *) active;

const tp_kernels *tp_kernels_get(void)
{
    const tp_kernels *kernels = atomic_load_explicit(&active, memory_order_acquire);
    if (kernels) return kernels;
    for (size_t i = 0; i < BUILT_IN; i++)
        if (available(built_in[i])) kernels = built_in[i];
    atomic_store_explicit(&active, kernels, memory_order_release); /* the same value from every thread */
    return kernels;
}

const tp_kernels *tp_kernels_find(const char *name, bool *is_available)
{
    for (size_t i = 0; i < BUILT_IN; i++)
        if (!strcmp(built_in[i]->name, name)) {
            *is_available = available(built_in[i]);
            return built_in[i];
        }
    *is_available = false;
    return NULL;
}

const char *const *tp_kernel_names(void)
{
    static const char *const names[] = {
        "portable",
#if defined(__x86_64__)
        "avx2",
        "avx512bw",
        "avx512",
#elif defined(__aarch64__)
        "neon",
#endif
        NULL,
    };
    return names;
}

bool tp_kernel_available(const char *name)
{
    bool is_available;
    return tp_kernels_find(name, &is_available) && is_available;
}

const char *tp_kernel_active(void)
{
    return tp_kernels_get()->name;
}

tp_status tp_kernel_force(const char *name)
{
    const tp_kernels *kernels = NULL;
    if (name) {
        bool is_available;
        kernels = tp_kernels_find(name, &is_available);
        if (!kernels) return TP_NOT_FOUND;
        if (!is_available) return TP_UNSUPPORTED;
    }
    atomic_store_explicit(&active, kernels, memory_order_release);
    return TP_OK;
}

uint64_t tp_hash64(const void *data, size_t size)
{
    return tp_kernels_get()->hash64(data, size);
}

void tp_hash128(const void *data, size_t size, uint64_t hash[2])
{
    tp_kernels_get()->hash128(data, size, hash);
}

void tp_hasher_init(tp_hasher *hasher)
{
    hasher->kernels = tp_kernels_get();
    hasher->kernels->hasher_init(hasher->state);
}

void tp_hasher_add(tp_hasher *hasher, const void *data, size_t size)
{
    hasher->kernels->hasher_add(hasher->state, data, size);
}

void tp_hasher_end(const tp_hasher *hasher, uint64_t hash[2])
{
    hasher->kernels->hasher_end(hasher->state, hash);
}
