/* infer_square.c - see infer_square.h. */
#include "graph/infer_square.h"

#include <string.h>

void sk_square_infer(sk_graph *g, const sk_node *n)
{
    const char *in = n->letters_in[0];
    size_t dims = strlen(in);
    if ((dims != 2 && dims != 3) || strcmp(in, n->letters_out[0])) {
        sk_graph_fail(g, SK_ECONF, "%s: \"%s\" is not \"m!n!->mn\" or \"em!n!->emn\" (%s)",
                      n->op->name, n->dims, n->where);
        return;
    }
    char row = in[dims - 2], col = in[dims - 1];
    if (!strchr(n->not_split, row) || !strchr(n->not_split, col))
        sk_graph_fail(g, SK_ECONF,
                      "%s: \"%s\" lets its matrices be split; '!' is needed behind %c and %c (%s)",
                      n->op->name, n->dims, row, col, n->where);
    else if (g->size[(int)row & 127] != g->size[(int)col & 127])
        sk_graph_fail(g, SK_ECONF, "%s: %lld rows and %lld columns; its matrices are square (%s)",
                      n->op->name, (long long)g->size[(int)row & 127],
                      (long long)g->size[(int)col & 127], n->where);
}
