/* nvml.c - the few calls of NVML that are used, with declarations of our own. */
#include "device/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

typedef struct memory {
    unsigned long long total, unused, used;
} memory;

typedef struct rates {
    unsigned gpu, memory;
} rates;

/* All return 0 when they did it. */
static struct {
    bool here;
    int (*init)(void);
    int (*driver)(char *to, unsigned size);
    int (*count)(unsigned *out);
    int (*at)(unsigned index, void **out);
    int (*by_uuid)(const char *uuid, void **out);
    int (*name)(void *gpu, char *to, unsigned size);
    int (*memory)(void *gpu, memory *out);
    int (*rates)(void *gpu, rates *out);
    int (*power)(void *gpu, unsigned *milliwatts);
    int (*heat)(void *gpu, int sensor, unsigned *celsius);
    char version[80];
} lib;

static void open_library(void)
{
    const struct {
        void *to;
        const char *name;
    } calls[] = {
        {&lib.init, "nvmlInit_v2"},
        {&lib.driver, "nvmlSystemGetDriverVersion"},
        {&lib.count, "nvmlDeviceGetCount_v2"},
        {&lib.at, "nvmlDeviceGetHandleByIndex_v2"},
        {&lib.by_uuid, "nvmlDeviceGetHandleByUUID"},
        {&lib.name, "nvmlDeviceGetName"},
        {&lib.memory, "nvmlDeviceGetMemoryInfo"},
        {&lib.rates, "nvmlDeviceGetUtilizationRates"},
        {&lib.power, "nvmlDeviceGetPowerUsage"},
        {&lib.heat, "nvmlDeviceGetTemperature"},
    };
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; so && i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(so, calls[i].name);
        if (!f) return;
        memcpy(calls[i].to, &f, sizeof f);
    }
    lib.here = so && !lib.init();
    if (lib.here && lib.driver(lib.version, sizeof lib.version)) lib.version[0] = 0;
}

static bool ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return lib.here;
}

static bool look(void *gpu, sk_nvml *out)
{
    memory m = {0};
    rates r = {0};
    unsigned x = 0;
    *out = (sk_nvml){.busy = -1};
    if (lib.name(gpu, out->model, sizeof out->model)) out->model[0] = 0;
    if (!lib.memory(gpu, &m)) {
        out->used = (int64_t)m.used;
        out->bytes = (int64_t)m.total;
    }
    if (!lib.rates(gpu, &r)) out->busy = (int)r.gpu;
    if (!lib.power(gpu, &x)) out->watts = 1e-3 * x;
    if (!lib.heat(gpu, 0, &x)) out->celsius = (int)x;
    return true;
}

int sk_nvml_count(void)
{
    unsigned n = 0;
    return ready() && !lib.count(&n) ? (int)n : 0;
}

const char *sk_nvml_driver(void) { return ready() ? lib.version : ""; }

bool sk_nvml_at(int index, sk_nvml *out)
{
    void *gpu = NULL;
    return ready() && !lib.at((unsigned)index, &gpu) && look(gpu, out);
}

bool sk_nvml_find(const char *uuid, sk_nvml *out)
{
    void *gpu = NULL;
    return ready() && !lib.by_uuid(uuid, &gpu) && look(gpu, out);
}
