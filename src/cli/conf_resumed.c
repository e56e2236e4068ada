/* conf_resumed.c - is the config.yaml of a run whole?
 *
 * skein writes every key, so a file of its own that ends before the last one was cut off (a full
 * disk, a broken copy).  Read as it is, the keys behind the cut would have their defaults, and the
 * run would go on as another job. */
#include "cli/conf_key.h"
#include "data/data_files.h"
#include "train/rundir.h"

#include <string.h>

enum { MAX_FILE = 1 << 20 };

static const char hint[] = "if it is damaged, remove it: --resume then takes the job that the "
                           "newest checkpoint holds";

/* NULL, or why it cannot be all that was written. */
static const char *why_cut(sk_arena *a, sk_text text, const sk_settings *s)
{
    const char *last = sk_conf_table[sk_n_conf_keys - 1].name;
    if (!s->n) return "has no keys";
    if (!sk_rundir_wrote(text.s)) return NULL; /* somebody else's, with the keys that they want */
    if (!sk_setting_find(s, last)) return sk_print(a, "ends before its last key, %s", last);
    return text.s[text.n - 1] == '\n' ? NULL : "ends in the middle of a line";
}

sk_status sk_conf_resumed(sk_arena *a, const char *path)
{
    sk_text text = {0};
    sk_settings all = {0};
    SK_TRY(sk_data_read(a, path, MAX_FILE, &text));
    sk_status status = sk_conf_yaml(a, path, &all);
    if (status) return sk_fail(status, "%s; %s", sk_strdup(a, sk_error_line()), hint);
    const char *why = why_cut(a, text, &all);
    return why ? sk_fail(SK_ECONF, "%s %s; %s", path, why, hint) : SK_OK;
}
