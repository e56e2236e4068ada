/* cmd.h - a command part: `skein NAME ...`.
 *
 * argv holds the words after the command's name.  A command prints its result
 * on stdout and returns a status; main prints the error report of a failure once, on
 * stderr, and exits with its code. */
#ifndef SK_CLI_CMD_H
#define SK_CLI_CMD_H

#include "base/arena.h"
#include "base/status.h"

typedef struct sk_cmd {
    const char *name, *doc;
    const char *help; /* what --help prints below the first line */
    sk_status (*run)(sk_arena *a, int argc, char **argv);
    const struct sk_option *options; /* those of its own that `help` does not name; NULL: none */
} sk_cmd;

extern const sk_cmd *const sk_cmd_parts[];

/* Every folder of parts, for `skein list`: each part begins with its name and its doc. */
typedef struct sk_part_kind {
    const char *kind;
    const void *const *parts;
} sk_part_kind;
extern const sk_part_kind sk_kinds[]; /* a kind without a name ends it */

#endif
