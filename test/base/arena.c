/* arena.c - lists that grow: in place where they can, and never over each other.
 *
 * A dozen lists are pushed to in turns drawn at random, with other memory taken between, and after
 * every step each has its own numbers, zeros behind them, and large ones begin on a line. */
#include "base/arena.h"
#include "base/rng.h"
#include "base/status.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LISTS = 12, MOST = 3000, ROUNDS = 20000, SIZE = 3 };

typedef struct item {
    uint64_t v[SIZE];
} item;

typedef struct list {
    item *v;
    int n, cap;
} list;

static int checks, bad;

static void check(int ok, const char *what)
{
    checks++;
    if (ok) return;
    if (bad++ < 5) printf("%s\n", what);
}

static uint64_t mark(int which, int i, int k)
{
    return (uint64_t)which << 40 | (uint64_t)i << 8 | (uint64_t)k;
}

static void push(sk_arena *a, list *l, int which)
{
    static const item none;
    item *x = sk_push(a, l);
    check(!memcmp(x, &none, sizeof none), "what is pushed is not zero");
    for (int k = 0; k < SIZE; k++) x->v[k] = mark(which, l->n - 1, k);
    check(l->cap < 16 || (uintptr_t)l->v % 64 == 0, "a large list does not begin on a line");
}

static void whole(const list *l, int which)
{
    int same = 1;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < SIZE; k++) same &= l->v[i].v[k] == mark(which, i, k);
    check(same, "a list lost its numbers to another");
}

static void by_lot(uint64_t seed)
{
    sk_arena a = {0};
    list lists[LISTS] = {0};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t x = sk_rng(seed, 1, i).a;
        int which = (int)(x % LISTS);
        if (x >> 32 & 1) memset(sk_alloc(&a, x >> 33 & 255), 255, x >> 33 & 255);
        if (lists[which].n < MOST) push(&a, &lists[which], which);
    }
    for (int i = 0; i < LISTS; i++) whole(&lists[i], i);
    sk_arena_end(&a);
}

/* Alone in its arena a list does not move before its block is full. */
static void alone(void)
{
    sk_arena a = {0};
    list l = {0};
    push(&a, &l, 1);
    const item *first = l.v;
    while (l.n < 1024) push(&a, &l, 1); /* 24 KiB of a block of 64 */
    check(l.v == first, "a list moved though there was room behind it");
    while (l.n < 9000) push(&a, &l, 1);
    whole(&l, 1);
    sk_arena_end(&a);
}

/* More than the system gives: a sentence and a code, no signal.  Allocators of sanitizers end the
 * process in their own way. */
static void refused(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return;
#endif
    int out[2], status = 0;
    char said[200] = "";
    check(!pipe(out), "no pipe");
    pid_t child = fork();
    if (!child) {
        sk_arena a = {0};
        dup2(out[1], 2);
        sk_alloc(&a, (size_t)1 << 46);
        _exit(0);
    }
    close(out[1]);
    ssize_t n = read(out[0], said, sizeof said - 1);
    close(out[0]);
    check(waitpid(child, &status, 0) == child, "nobody to wait for");
    check(WIFEXITED(status) && WEXITSTATUS(status) == SK_EIO, "no memory: not code 74");
    check(n > 0 && strstr(said, "memory: the system refuses 7036874417") != NULL,
          "no memory: no sentence");
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 8; seed++) by_lot(seed);
    alone();
    refused();
    printf("arena: %d checks, %d bad\n", checks, bad);
    return bad != 0;
}
