/* kinds.c - the rows of kinds.h as tables. */
#include "coll/kinds.h"

#define ROW(kind, name, src, dst, origin, copied, counts) \
    [kind] = {SK_OPERAND_##src, SK_OPERAND_##dst, SK_FROM_##origin, copied, counts},
#define NAME(kind, name, ...) [kind] = name,

const sk_kind_row sk_kind_rows[SK_N_COLLS] = {SK_COLL_KINDS(ROW)};
const char *const sk_coll_names[SK_N_COLLS] = {SK_COLL_KINDS(NAME)};

static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (*a != *b || !*a) return *a == *b;
    }
}

int sk_kind_find(const char *name)
{
    int kind = 0;
    while (kind < SK_N_COLLS && !same_name(name, sk_coll_names[kind])) kind++;
    return kind;
}
