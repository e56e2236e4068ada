/* mesh_ranks.c - ranks as points of a mesh. */
#include "layout/layout.h"

#include <string.h>

int sk_mesh_ranks(const sk_mesh *m)
{
    int n = 1;
    for (int a = 0; a < m->n; a++) n *= m->size[a];
    return n;
}

void sk_mesh_coords(const sk_mesh *m, int rank, int coord[SK_MAX_AXES])
{
    for (int a = m->n - 1; a >= 0; a--) {
        coord[a] = rank % m->size[a];
        rank /= m->size[a];
    }
}

int sk_mesh_rank(const sk_mesh *m, const int coord[SK_MAX_AXES])
{
    int rank = 0;
    for (int a = 0; a < m->n; a++) rank = rank * m->size[a] + coord[a];
    return rank;
}

int sk_mesh_axis(const sk_mesh *m, const char *name)
{
    for (int a = 0; a < m->n; a++)
        if (!strcmp(m->name[a], name)) return a;
    return -1;
}
