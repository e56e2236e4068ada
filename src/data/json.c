/* json.c - see json.h. */
#include "data/json.h"

#include <string.h>

const char *sk_json_text(json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

sk_status sk_json_flag(const char *path, json_t *object, const char *key, bool *out)
{
    json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) return SK_OK;
    if (!json_is_boolean(v)) return sk_fail(SK_EDATA, "%s: %s must be true or false", path, key);
    *out = json_is_true(v);
    return SK_OK;
}

static bool among(const char *known, const char *key)
{
    size_t n = strlen(key);
    for (const char *s = known; *s; s += strspn(s, " ")) {
        size_t m = strcspn(s, " ");
        if (m == n && !memcmp(s, key, n)) return true;
        s += m;
    }
    return false;
}

sk_status sk_json_only(const char *path, const char *what, json_t *object, const char *known)
{
    const char *key;
    json_t *v;
    if (!json_is_object(object)) return sk_fail(SK_EDATA, "%s: %s is no object", path, what);
    json_object_foreach(object, key, v) if (!among(known, key)) return sk_fail(
        SK_EDATA, "%s: %s has a key \"%.40s\" that skein does not know; known: %s", path, what, key,
        known);
    return SK_OK;
}
