/* owed.c - see owed.h. */
#include "train/owed.h"
#include "tensor/tensor_shard.h"

#include <string.h>

static bool is_named(const sk_program *p, int buf, const char *name, size_t n)
{
    return buf >= 0 && !strncmp(p->bufs.v[buf].name, name, n) && !p->bufs.v[buf].name[n];
}

/* Is it kept by a rank of the first so many classes?  A rank has the parameters of its stage. */
static bool has_place(const sk_setup *s, int n_classes, const char *name, size_t n)
{
    for (int k = 0; k < n_classes; k++) {
        const sk_program *p = sk_setup_program_of(s, s->first_of[k]);
        for (int i = 0; i < p->params.n; i++)
            if (is_named(p, p->params.v[i].error, name, n) ||
                is_named(p, p->params.v[i].change_error, name, n))
                return true;
    }
    return false;
}

/* Is this buffer of a class the first of its name, and has the other setup none? */
static bool is_dropped(const sk_setup *from, int class, int buf, const sk_setup *to)
{
    if (buf < 0) return false;
    const sk_program *p = sk_setup_program_of(from, from->first_of[class]);
    const char *name = p->bufs.v[buf].name;
    return !has_place(from, class, name, strlen(name)) &&
           !has_place(to, to->n_classes, name, strlen(name));
}

sk_owed sk_owed_dropped(const sk_setup *from, const sk_setup *to)
{
    sk_owed n = {0};
    for (int k = 0; k < from->n_classes; k++) {
        const sk_program *p = sk_setup_program_of(from, from->first_of[k]);
        for (int i = 0; i < p->params.n; i++) {
            n.grads += is_dropped(from, k, p->params.v[i].error, to);
            n.changes += is_dropped(from, k, p->params.v[i].change_error, to);
        }
    }
    return n;
}

/* Bytes of a name before its ending; 0: it has another one. */
static size_t before(const char *name, size_t n, const char *ending)
{
    size_t m = strlen(ending);
    return n > m && !strncmp(name + n - m, ending, m) ? n - m : 0;
}

sk_owed sk_owed_resumed(const sk_ckpt *c, const sk_setup *to)
{
    sk_owed owed = {0};
    for (int i = 0; i < c->tensors.n; i++) {
        const char *name = c->tensors.v[i].name;
        size_t all = strlen(name), n = before(name, all, SK_REPLICA_SUFFIX);
        if (!n) n = all;
        bool grad = before(name, n, SK_ERROR_SUFFIX), change = before(name, n, SK_CHANGE_SUFFIX);
        if ((!grad && !change) || has_place(to, to->n_classes, name, n)) continue;
        owed.grads += grad;
        owed.changes += change;
    }
    return owed;
}

char *sk_owed_print(sk_arena *a, sk_owed n)
{
    sk_out o = {.arena = a};
    if (n.grads) sk_out_add(&o, "of %d gradient%s", n.grads, sk_plural(n.grads));
    if (n.changes)
        sk_out_add(&o, "%sof %d change%s", o.n ? " and " : "", n.changes, sk_plural(n.changes));
    return o.s;
}
