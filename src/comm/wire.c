/* wire.c - finding and opening the modules that carry messages between hosts. */
#include "comm/wire.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef SK_MODULES /* where they are installed: from the program's folder, or a whole path */
#define SK_MODULES "../lib/skein"
#endif

typedef struct places { /* where a module may be, in the order of looking */
    char path[6][PATH_MAX];
    int n;
} places;

/* `way` starts at the folder, unless it is a whole path. */
static void add_place(places *p, const char *folder, const char *way, const char *name)
{
    if (*way == '/') folder = "";
    int n = snprintf(p->path[p->n], PATH_MAX, "%s%s%s/skein_%s.so", folder, *folder ? "/" : "", way,
                     name);
    if (n > 0 && n < PATH_MAX) p->n++;
}

/* Beside libskein.so, where another program uses that; of a static one, beside the program. */
static void list_library(const char *name, places *p)
{
    static const char here = 0;
    char file[PATH_MAX];
    Dl_info info;
    if (!dladdr(&here, &info) || !info.dli_fname || !realpath(info.dli_fname, file)) return;
    char *slash = strrchr(file, '/');
    if (slash) *slash = 0;
    add_place(p, file, "skein", name);
    add_place(p, file, ".", name);
}

static void list_places(const char *name, places *p)
{
    char self[PATH_MAX];
    const char *asked = getenv("SKEIN_MODULES");
    if (asked && *asked) add_place(p, asked, ".", name);
    list_library(name, p);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    add_place(p, self, ".", name);
    add_place(p, self, "..", name);
    add_place(p, self, SK_MODULES, name);
}

/* A name comes from outside: no path, only a word. */
static bool is_word(const char *s)
{
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(s);
}

/* The first place that has the module; p->n: none. */
static int find(const char *name, places *p)
{
    int i = 0;
    p->n = 0;
    if (is_word(name)) list_places(name, p);
    while (i < p->n && access(p->path[i], R_OK)) i++;
    return i;
}

static sk_status missing(const char *name, const places *p, int at)
{
    if (at < p->n)
        return sk_fail(SK_EUSAGE, "wire %s: %s cannot be loaded: %s", name, p->path[at], dlerror());
    if (strcmp(name, "openmpi") && strcmp(name, "mpich"))
        return sk_fail(SK_EUSAGE,
                       "wire %s: there is no such module; openmpi and mpich can be built", name);
    return sk_fail(SK_EUSAGE,
                   "wire %s: there is no skein_%s.so beside the program or in " SK_MODULES "; apt "
                   "install lib%s-dev and build skein again, or name its folder in SKEIN_MODULES",
                   name, name, name);
}

sk_status sk_wire_open(const char *name, sk_wire **out)
{
    places p;
    int at = find(name, &p);
    /* Open MPI finds its own plug-ins only if its library is global. */
    void *lib = at < p.n ? dlopen(p.path[at], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!lib) return missing(name, &p, at);
    void *symbol = dlsym(lib, SK_WIRE_SYMBOL);
    sk_wire_open_fn *start;
    memcpy(&start, &symbol, sizeof start); /* C has no cast from data to a function */
    if (!start)
        return sk_fail(SK_EUSAGE, "wire %s: %s is no module of skein: it has no %s", name,
                       p.path[at], SK_WIRE_SYMBOL);
    sk_wire *w = NULL;
    SK_TRY(start(sk_fail_at, &w));
    if (w->abi != SK_WIRE_ABI)
        return sk_fail(SK_EUSAGE,
                       "wire %s: %s was built for interface %d, this program has %d; build skein "
                       "again",
                       name, p.path[at], w->abi, SK_WIRE_ABI);
    *out = w;
    return SK_OK;
}

bool sk_wire_has(const char *name)
{
    places p;
    return find(name, &p) < p.n; /* not loaded: two MPIs in one process do not go together */
}
