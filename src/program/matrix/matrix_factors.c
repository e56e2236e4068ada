/* matrix_factors.c - Kronecker factors (graph/extra.h) of the rows and columns of a matrix, for
 * optimizers that ask for them (sk_optim.factors).
 *
 * The backward pass leaves a factor as it leaves gradients: reduced, and sharded along dim 0 under
 * ZeRO.  It is gathered over the axes that cut it, as the matrix is; factors of a matrix that is
 * distributed to an owner go there too (distributed_update.c). */
#include "graph/extra.h"
#include "program/param_groups.h"
#include "program/matrix/matrix_update.h"

#include <string.h>

/* The role of the letters of a factor that it shares with the parameter: '1' or '2'. */
static char side_of(const sk_lowering *e, const sk_param_plan *q, const sk_tensor *factor)
{
    char roles[SK_MAX_DIM + 1];
    if (!sk_param_matrix(e->g, q->tensor, roles)) return 0;
    for (int d = 0; roles[d]; d++)
        if (roles[d] != '0' && strchr(factor->letters, q->tensor->letters[d])) return roles[d];
    return 0;
}

int sk_matrix_factor(const sk_lowering *e, const sk_param_plan *q, int side)
{
    if (!q->optim->factors) return -1;
    for (int kind = SK_EXTRA_KRON_A; kind <= SK_EXTRA_KRON_G; kind++) {
        int i = sk_program_extra(e->p, q->tensor, kind);
        if (i >= 0 && side_of(e, q, e->p->params.v[i].tensor) == '1' + side) return i;
    }
    return -1;
}

/* Axes that cut the matrices of the parameter apart cut its factors apart too. */
sk_state sk_matrix_factor_state(const sk_lowering *e, int factor, const sk_state *whole)
{
    sk_state s = e->p->params.v[factor].update;
    for (int a = 0; a < e->l->mesh.n; a++)
        if (s.how[a] == SK_SPLIT && whole->how[a] != SK_SPLIT) s.how[a] = SK_REPLICATE;
    return s;
}

/* Where matrices are cut apart (experts) and their factors are not, since all ranks of the axis
 * have samples of all: s becomes the state that goes with the matrices. */
bool sk_matrix_factor_sharded(const sk_lowering *e, const sk_param_plan *q, int factor,
                              const sk_state *whole, sk_state *s)
{
    const char *letters = e->p->params.v[factor].tensor->letters;
    bool any = false;
    for (int a = 0; a < e->l->mesh.n; a++) {
        if (whole->how[a] != SK_SPLIT || s->how[a] == SK_SPLIT) continue;
        const char *at = strchr(letters, q->tensor->letters[whole->dim[a]]);
        sk_assert(at);
        s->how[a] = SK_SPLIT;
        s->dim[a] = (uint8_t)(at - letters);
        any = true;
    }
    return any;
}

bool sk_matrix_factor_cut(const sk_lowering *e, int factor)
{
    int a = e->l->shard_axis;
    return factor >= 0 && a >= 0 && e->l->mesh.size[a] > 1 &&
           sk_lower_is_cut(e, &e->p->params.v[factor]);
}

/* Can owners have the factors of this parameter brought to them? */
bool sk_matrix_factors_distributed(const sk_lowering *e, const sk_param_plan *q)
{
    int a = e->l->shard_axis;
    for (int side = 0; side < 2; side++) {
        int i = sk_matrix_factor(e, q, side);
        if (!sk_matrix_factor_cut(e, i)) continue;
        const sk_param_plan *x = &e->p->params.v[i];
        if (!sk_lower_finest(e, x->tensor, &x->update, a, x->update.dim[a])) return false;
    }
    return true;
}
