#include "gpu/pattern.h"

#include <string.h>

/* A set from its `[` on: whether it holds c, and in *end where the pattern goes on. NULL: no set. */
static bool in_set(const char *set, unsigned char c, const char **end)
{
    const bool inverted = set[1] == '!' || set[1] == '^';
    const char *p = set + 1 + inverted;
    bool found = false;
    *end = NULL;
    for (bool first = true; first || *p != ']';
         first = false) { /* a ] that comes first is one of the set */
        if (*p == '\\' && p[1]) p++;
        if (!*p) return false;
        const unsigned char low = (unsigned char)*p++;
        unsigned char high = low;
        if (p[0] == '-' && p[1] && p[1] != ']') {
            p += p[1] == '\\' && p[2] ? 2 : 1;
            high = (unsigned char)*p++;
        }
        found |= low <= c && c <= high;
    }
    *end = p + 1;
    return found != inverted;
}

/* Whether one byte matches what the pattern begins with, no `*`; *next: what follows it. */
static bool one(const char *pattern, unsigned char c, const char **next)
{
    if (*pattern == '[') {
        const bool found = in_set(pattern, c, next);
        if (*next) return found;
    }
    if (*pattern == '\\' && pattern[1])
        pattern++;
    else if (*pattern == '?')
        c = '?';
    *next = pattern + 1;
    return *pattern && (unsigned char)*pattern == c;
}

bool tp_pattern_matches(const char *pattern, const char *name, size_t size)
{
    /* Only the last `*` need ever be tried again: what one before it could take, that one can. */
    const char *star = NULL, *next;
    size_t at = 0, star_at = 0;
    while (at < size || *pattern) {
        if (*pattern == '*') {
            star = ++pattern;
            star_at = at;
        } else if (at < size && one(pattern, (unsigned char)name[at], &next)) {
            pattern = next;
            at++;
        } else if (star && star_at < size) {
            pattern = star;
            at = ++star_at;
        } else {
            return false;
        }
    }
    return true;
}
