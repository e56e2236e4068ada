/* arena.h - memory with one owner and one end.
 *
 * Whatever is built together dies together: a graph, a layout, a program each
 * live in one arena, and nothing in them is freed alone.  A function that
 * needs room takes the arena as its first argument; that is the only sign of
 * ownership in skein.  Memory comes back zeroed and aligned to a cache line
 * when it is large, to 16 bytes when it is small.  Running out of host memory
 * while building ends the process with a sentence and code 74: there is nothing
 * sensible left to do. */
#ifndef SK_BASE_ARENA_H
#define SK_BASE_ARENA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sk_arena {
    struct sk_block *top; /* newest block; older ones hang below it */
} sk_arena;

typedef struct sk_mark {
    struct sk_block *top;
    size_t used;
} sk_mark;

#define sk_new(arena, type)     ((type *)sk_alloc((arena), sizeof(type)))
#define sk_many(arena, type, n) ((type *)sk_alloc_n((arena), sizeof(type), (size_t)(n)))

void *sk_alloc(sk_arena *a, size_t bytes);
void *sk_alloc_n(sk_arena *a, size_t size, size_t n); /* a product that overflows is a bug */
void *sk_grow(sk_arena *a, void *old, size_t old_bytes, size_t new_bytes);
char *sk_print(sk_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *sk_strdup(sk_arena *a, const char *s);

/* Append to a growing array { T *v; int n, cap; }: returns the new, zeroed element. */
#define sk_push(arena, list)                                                                   \
    ((list)->n == (list)->cap                                                                  \
         ? (void)((list)->v =                                                                  \
                      sk_grow((arena), (list)->v, sizeof *(list)->v * (size_t)(list)->n,       \
                              sizeof *(list)->v *                                              \
                                  (size_t)((list)->cap = (list)->cap ? 2 * (list)->cap : 16))) \
         : (void)0,                                                                            \
     &(list)->v[(list)->n++])

/* Scratch: remember a mark, build what you like, go back to it. */
sk_mark sk_arena_mark(const sk_arena *a);
void sk_arena_back(sk_arena *a, sk_mark m);
void sk_arena_end(sk_arena *a);

/* From now on blocks that arenas give up are kept for other arenas, up to so many bytes in all; 0
 * gives them back to the system.  For those who fill and end large arenas many times: the system
 * zeroes every page that it hands out again. */
void sk_arena_reuse(size_t most);

#ifdef __cplusplus
}
#endif

#endif
