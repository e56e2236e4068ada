/* pins.c - reading and asking pins. */
#include "coll/pins.h"
#include "base/hash.h"
#include "base/strings.h"

#include <stdio.h>
#include <string.h>

enum { WORD = 64 };

/* [from, from + n) without spaces around it; false: too long. */
static bool take(const char *from, size_t n, char to[WORD])
{
    while (n && *from == ' ') from++, n--;
    while (n && from[n - 1] == ' ') n--;
    if (n >= WORD) return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

static sk_status unknown(const char *key, const char *what, const char *name,
                         const char *const *names, int n)
{
    char all[256] = "";
    const char *near = sk_nearest(name, names, n);
    for (int i = 0; i < n; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    return sk_fail(SK_EUSAGE, "%s: no %s is called '%s'%s%s%s; there are: %s", key, what, name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", all);
}

static sk_status find_kind(const char *key, const char *name, int *kind)
{
    *kind = sk_kind_find(name);
    if (*kind < SK_N_COLLS) return SK_OK;
    return unknown(key, "kind of collective", name, sk_coll_names, SK_N_COLLS);
}

static sk_status find_axis(const char *key, const char *name, const char *const *axes, int n,
                           int *axis)
{
    for (*axis = 0; *axis < n; (*axis)++)
        if (!strcmp(name, axes[*axis])) return SK_OK;
    return unknown(key, "axis of the layout", name, axes, n);
}

static sk_status twice(const char *key, const char *what)
{
    return sk_fail(SK_EUSAGE, "%s says twice what is for %s; leave one of them out", key, what);
}

/* "all-reduce/dp" of the entry, and its algorithm. */
static sk_status add(const char *key, const char *of, int pin, uint64_t degrees,
                     const char *const *axes, int n_axes, sk_pins *out)
{
    char name[WORD], axis_name[WORD];
    size_t n = strcspn(of, "/");
    int kind, axis;
    take(of, n, name);
    SK_TRY(find_kind(key, name, &kind));
    if (!of[n]) {
        if (out->kind[kind].said) return twice(key, of);
        out->kind[kind].said = true;
        out->kind[kind].pin = pin;
        out->kind[kind].degrees = degrees;
        return SK_OK;
    }
    take(of + n + 1, strlen(of + n + 1), axis_name);
    SK_TRY(find_axis(key, axis_name, axes, n_axes, &axis));
    if (out->kind[kind].axis_said[axis]) return twice(key, of);
    out->kind[kind].axis_said[axis] = true;
    out->kind[kind].axis[axis] = pin;
    out->kind[kind].axis_degrees[axis] = degrees;
    return SK_OK;
}

sk_status sk_pins_read(const char *key, const char *text, const char *const *axes, int n_axes,
                       sk_pins *out)
{
    bool all = false;
    *out = (sk_pins){0};
    sk_assert(n_axes <= SK_PIN_AXES);
    for (const char *at = text; *at;) {
        char of[WORD], name[WORD];
        size_t n = strcspn(at, ","), colon = strcspn(at, ":");
        bool every = colon >= n;
        uint64_t degrees;
        int pin;
        if (take(at, colon, of)) every |= sk_coll_find(of) >= 0; /* its degrees follow */
        if (!take(at, every ? 0 : colon, of) ||
            !take(every ? at : at + colon + 1, every ? n : n - colon - 1, name) || !*name)
            return sk_fail(SK_EUSAGE,
                           "%s is \"%.100s\"; ALGORITHM, or entries \"KIND: ALGORITHM\" or "
                           "\"KIND/AXIS: ALGORITHM\" with commas between them are needed",
                           key, text);
        SK_TRY(sk_pin_find(key, name, &pin, &degrees));
        if (!every) SK_TRY(add(key, of, pin, degrees, axes, n_axes, out));
        else if (all) return twice(key, "all collectives");
        else out->all = pin, out->all_degrees = degrees, all = true;
        at += n + (at[n] == ',');
    }
    return SK_OK;
}

int sk_pins_of(const sk_pins *p, sk_coll_kind kind, int axis)
{
    if (axis >= 0 && p->kind[kind].axis_said[axis]) return p->kind[kind].axis[axis];
    return p->kind[kind].said ? p->kind[kind].pin : p->all;
}

uint64_t sk_pins_degrees(const sk_pins *p, sk_coll_kind kind, int axis)
{
    if (axis >= 0 && p->kind[kind].axis_said[axis]) return p->kind[kind].axis_degrees[axis];
    return p->kind[kind].said ? p->kind[kind].degrees : p->all_degrees;
}

bool sk_pins_any(const sk_pins *p)
{
    bool any = p->all != SK_PIN_NONE;
    for (int k = 0; k < SK_N_COLLS; k++)
        for (int a = -1; a < SK_PIN_AXES; a++)
            any |= sk_pins_of(p, (sk_coll_kind)k, a) != SK_PIN_NONE;
    return any;
}

uint64_t sk_pins_hash(uint64_t h, const sk_pins *p)
{
    for (int k = 0; k < SK_N_COLLS; k++)
        for (int a = -1; a < SK_PIN_AXES; a++) {
            int pin = sk_pins_of(p, (sk_coll_kind)k, a);
            uint64_t degrees = sk_pins_degrees(p, (sk_coll_kind)k, a);
            h = sk_hash(h, &pin, sizeof pin);
            if (degrees) h = sk_hash(h, &degrees, sizeof degrees);
        }
    return h;
}
