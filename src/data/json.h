/* json.h - reading objects of which every key must be understood. */
#ifndef SK_DATA_JSON_H
#define SK_DATA_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>

/* A string, "" if there is none. */
const char *sk_json_text(json_t *object, const char *key);
/* true or false; *out keeps its value if the key is missing or null. */
sk_status sk_json_flag(const char *path, json_t *object, const char *key, bool *out);
/* Refuse a key of `object` (called `what` in the message) that is not among the words of `known`,
 * and a thing that is no object. */
sk_status sk_json_only(const char *path, const char *what, json_t *object, const char *known);

#endif
