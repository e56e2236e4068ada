/* kinds.c - the rows of kinds.h as tables. */
#include "coll/kinds.h"

#define ROW(kind, name, src, dst, origin, copied, counts) \
    [kind] = {SK_OPERAND_##src, SK_OPERAND_##dst, SK_FROM_##origin, copied, counts},
#define NAME(kind, name, ...) [kind] = name,

const sk_kind_row sk_kind_rows[SK_N_COLLS] = {SK_COLL_KINDS(ROW)};
const char *const sk_coll_names[SK_N_COLLS] = {SK_COLL_KINDS(NAME)};
