/* param_groups.h - classes of parameters, by how the graph reads them (param_groups.c). */
#ifndef SK_PROGRAM_PARAM_GROUPS_H
#define SK_PROGRAM_PARAM_GROUPS_H

#include "graph/graph.h"
#include "kernel/optim.h"

typedef enum sk_param_class {
    SK_PARAM_VECTOR,
    SK_PARAM_MATRIX,
    SK_PARAM_HEAD,
    SK_PARAM_EMBEDDING,
    SK_PARAM_REST, /* of no parameter: whatever is in no other group */
    SK_PARAM_N_CLASSES
} sk_param_class;

const char *sk_param_class_name(sk_param_class c); /* NULL behind the last */
sk_param_class sk_param_class_of(const sk_graph *g, const sk_tensor *t);
/* The roles of the letters of a parameter that is a matrix, or several: '1' rows, '2' columns, '0'
 * which of them; each kind in line, '2' last.  False: it is none.  An embedding has rows of its
 * first letter. */
bool sk_param_matrix(const sk_graph *g, const sk_tensor *t, char roles[SK_MAX_DIM + 1]);
/* Of a matrix: are its rows outputs of the product that reads it? */
bool sk_param_rows_out(const sk_graph *g, const sk_tensor *t);
/* How many sides of the parameter have a Kronecker factor, once the graph has its backward half. */
int sk_param_factors(const sk_graph *g, const sk_tensor *t);
/* The first of n groups that a parameter is in, from 1 on; 0: none.  The first function: with
 * factors or without, as it is before the graph has its backward half. */
int sk_param_group_asked(const sk_graph *g, const sk_tensor *t, const sk_param_group *v, int n);
int sk_param_group_of(const sk_graph *g, const sk_tensor *t, const sk_param_group *v, int n);

#endif
