/* cuda.cu - an NVIDIA GPU as a device, through the CUDA run time.
 *
 * cudaMalloc is called once per pool and never again: it costs up to a millisecond and waits for
 * the whole device.  Streams do not wait for the legacy default stream, so what is ordered is only
 * what device.h says is ordered.  The run time is linked in and looks for the driver when the
 * first call comes; without driver or GPU that call fails, with a sentence, and nothing else does.
 * Closing ignores what the run time answers: the work is over or has failed with its own error. */
#include "device/device.h"
#include "base/strings.h"

#include <cuda_runtime.h>
#include <stdio.h>

/* The current device belongs to the thread, and a library may have changed it. */
static cudaError_t enter(const sk_device *d) { return cudaSetDevice(d->index); }

static sk_status failed(const sk_device *d, const char *what, cudaError_t e)
{
    return sk_fail(SK_EIO, "device '%s': %s failed: %s (%s)", d->name, what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
}

/* A failed call of the run time also leaves a note for cudaGetLastError(), where the next launch
 * would find it and take it for its own: take it away. */
#define TRY(d, call)                       \
    do {                                   \
        cudaError_t e_ = (call);           \
        if (e_ != cudaSuccess) {           \
            (void)cudaGetLastError();      \
            return failed((d), #call, e_); \
        }                                  \
    } while (0)

static sk_status cuda_open(sk_device *d)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver || (!e && !n)) {
        (void)cudaGetLastError();
        return sk_fail(SK_ECONF,
                       "device '%s': no GPU that CUDA can use: %s; see what nvidia-smi says, or "
                       "use the device 'cpu'",
                       d->name, cudaGetErrorString(e ? e : cudaErrorNoDevice));
    }
    TRY(d, e);
    if (d->index >= n)
        return sk_fail(SK_ECONF, "device '%s': this host has %d, 'cuda:0' to 'cuda:%d'", d->name, n,
                       n - 1);
    TRY(d, enter(d));
    TRY(d, cudaFree(NULL)); /* makes the context now: seconds, better here than in step 1 */
    return SK_OK;
}

static sk_status cuda_enter(sk_device *d)
{
    TRY(d, enter(d));
    return SK_OK;
}

static int cuda_count(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    (void)cudaGetLastError();
    return 0;
}

/* ---- facts */

/* Peaks of products of matrices, by convention: the data sheet's, dense (without sparsity), sums in
 * f32; of f32 without TF32.  Data sheets take clocks of their own (989.4e12 is 1.83 GHz on a chip
 * that may run at 1.98), so known chips are listed; others are SMs x what an SM does in a cycle x
 * the highest clock that the driver tells. */
static const struct chip {
    int capability, sms;
    double narrow, f32;
} chips[] = {
    {90, 132, 989.4e12, 66.9e12}, /* H100 SXM, H200, GH200 */
    {90, 114, 756e12, 51.2e12},   /* H100 PCIe */
    {80, 108, 312e12, 19.5e12},   /* A100 */
    {100, 148, 2250e12, 80e12},   /* B200 */
};

static const struct cycle {
    int capability;
    double narrow, f32; /* flops of an SM in a cycle */
} cycles[] = {{70, 1024, 128},  {75, 1024, 128}, {80, 2048, 128}, {86, 1024, 256},
              {87, 1024, 256},  {89, 1024, 256}, {90, 4096, 256}, {100, 8192, 256},
              {103, 8192, 256}, {120, 1024, 256}};

static int ask(const sk_device *d, cudaDeviceAttr what)
{
    int x = 0;
    if (cudaDeviceGetAttribute(&x, what, d->index) == cudaSuccess) return x;
    (void)cudaGetLastError();
    return 0;
}

static void find_peaks(const sk_device *d, sk_device_facts *out)
{
    int sms = ask(d, cudaDevAttrMultiProcessorCount);
    double hz = 1e3 * ask(d, cudaDevAttrClockRate);
    for (const cycle &c : cycles)
        if (c.capability == out->capability) {
            out->flops[SK_PEAK_NARROW] = c.narrow * sms * hz;
            out->flops[SK_PEAK_F32] = c.f32 * sms * hz;
        }
    for (const chip &c : chips)
        if (c.capability == out->capability && c.sms == sms) {
            out->flops[SK_PEAK_NARROW] = c.narrow;
            out->flops[SK_PEAK_F32] = c.f32;
        }
    /* two words a clock */
    out->bytes_s =
        2e3 * ask(d, cudaDevAttrMemoryClockRate) / 8 * ask(d, cudaDevAttrGlobalMemoryBusWidth);
}

static void write_uuid(const cudaUUID_t *u, char to[48])
{
    char *at = to + snprintf(to, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        at += snprintf(at, (size_t)(to + 48 - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       (unsigned)(unsigned char)u->bytes[i]);
}

static sk_status cuda_look(sk_device *d, sk_device_facts *out)
{
    cudaDeviceProp p;
    size_t available = 0, all = 0;
    TRY(d, enter(d));
    TRY(d, cudaGetDeviceProperties(&p, d->index));
    TRY(d, cudaMemGetInfo(&available, &all));
    snprintf(out->model, sizeof out->model, "%.127s", p.name);
    out->bytes = (int64_t)all;
    out->available = (int64_t)available;
    out->capability = 10 * p.major + p.minor;
    write_uuid(&p.uuid, out->uuid);
    TRY(d, cudaDriverGetVersion(&out->driver));
    TRY(d, cudaRuntimeGetVersion(&out->runtime));
    find_peaks(d, out);
    return SK_OK;
}

static int cuda_tools(bool open, sk_device_library *out)
{
    sk_lt_about(open, &out[0]);
    sk_sdpa_about(open, &out[1]);
    sk_nccl_about(open, &out[2]);
    sk_solver_about(open, &out[3]);
    return 4;
}

/* ---- pools */

static sk_status no_memory(sk_device *d, size_t bytes)
{
    size_t available = 0, all = 0;
    TRY(d, cudaMemGetInfo(&available, &all));
    sk_arena a = {0};
    sk_status st = sk_fail(SK_EIO,
                           "device '%s': a pool of %s (%zu bytes) does not fit, %s of %s are free; "
                           "use a smaller micro-batch, or shard or recompute more",
                           d->name, sk_bytes(&a, (int64_t)bytes), bytes,
                           sk_bytes(&a, (int64_t)available), sk_bytes(&a, (int64_t)all));
    sk_arena_end(&a);
    return st;
}

static sk_status cuda_pool_open(sk_device *d, size_t bytes, void **base)
{
    TRY(d, enter(d));
    cudaError_t e = cudaMalloc(base, bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return no_memory(d, bytes);
    }
    TRY(d, e);
    return SK_OK;
}

static void cuda_pool_close(sk_device *d, void *base, size_t bytes)
{
    (void)bytes;
    (void)enter(d);
    (void)cudaFree(base);
}

/* ---- memory of the host */

static sk_status cuda_pinned_open(sk_device *d, size_t bytes, void **base)
{
    TRY(d, enter(d));
    TRY(d, cudaHostAlloc(base, bytes, cudaHostAllocDefault));
    return SK_OK;
}

static void cuda_pinned_close(sk_device *d, void *base)
{
    (void)enter(d);
    (void)cudaFreeHost(base);
}

static sk_status cuda_pin(sk_device *d, void *base, size_t bytes)
{
    TRY(d, enter(d));
    TRY(d, cudaHostRegister(base, bytes, cudaHostRegisterDefault));
    return SK_OK;
}

static void cuda_unpin(sk_device *d, void *base)
{
    (void)enter(d);
    (void)cudaHostUnregister(base);
}

/* ---- streams */

/* Addresses of host and devices are one space, so the direction need not be said. */
static sk_status cuda_copy(sk_device *d, void *to, const void *from, size_t bytes, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)s));
    return SK_OK;
}

static sk_status cuda_stream_open(sk_device *d, sk_stream **out)
{
    cudaStream_t s = NULL;
    TRY(d, enter(d));
    TRY(d, cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    *out = (sk_stream *)s;
    return SK_OK;
}

static void cuda_stream_close(sk_device *d, sk_stream *s)
{
    (void)enter(d);
    (void)cudaStreamDestroy((cudaStream_t)s);
}

static sk_status cuda_stream_sync(sk_device *d, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaStreamSynchronize((cudaStream_t)s));
    return SK_OK;
}

static sk_status cuda_stream_done(sk_device *d, sk_stream *s, bool *out)
{
    TRY(d, enter(d));
    cudaError_t e = cudaStreamQuery((cudaStream_t)s);
    *out = e == cudaSuccess;
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return SK_OK;
    }
    TRY(d, e);
    return SK_OK;
}

static sk_status cuda_zero(sk_device *d, void *to, size_t bytes, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaMemsetAsync(to, 0, bytes, (cudaStream_t)s));
    return SK_OK;
}

/* ---- CUDA graphs.  Only what this thread does is recorded. */

static sk_status cuda_graph_begin(sk_device *d, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaStreamBeginCapture((cudaStream_t)s, cudaStreamCaptureModeThreadLocal));
    return SK_OK;
}

static sk_status cuda_graph_end(sk_device *d, sk_stream *s, sk_device_graph **out)
{
    cudaGraph_t g = NULL;
    cudaGraphExec_t x = NULL;
    TRY(d, enter(d));
    TRY(d, cudaStreamEndCapture((cudaStream_t)s, &g));
    cudaError_t e = cudaGraphInstantiate(&x, g, 0);
    (void)cudaGraphDestroy(g);
    TRY(d, e);
    *out = (sk_device_graph *)x;
    return SK_OK;
}

static sk_status cuda_graph_launch(sk_device *d, sk_device_graph *t, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaGraphLaunch((cudaGraphExec_t)t, (cudaStream_t)s));
    return SK_OK;
}

static void cuda_graph_close(sk_device *d, sk_device_graph *t)
{
    (void)enter(d);
    (void)cudaGraphExecDestroy((cudaGraphExec_t)t);
}

/* ---- events */

static sk_status cuda_event_open(sk_device *d, sk_event **out)
{
    cudaEvent_t e = NULL;
    TRY(d, enter(d));
    TRY(d, cudaEventCreate(&e));
    *out = (sk_event *)e;
    return SK_OK;
}

static void cuda_event_close(sk_device *d, sk_event *e)
{
    (void)enter(d);
    (void)cudaEventDestroy((cudaEvent_t)e);
}

static sk_status cuda_event_record(sk_device *d, sk_event *e, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaEventRecord((cudaEvent_t)e, (cudaStream_t)s));
    return SK_OK;
}

/* While a stream is recorded, a plain record only orders; an external one becomes a node. */
static sk_status cuda_event_mark(sk_device *d, sk_event *e, sk_stream *s)
{
    cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
    TRY(d, enter(d));
    TRY(d, cudaStreamIsCapturing((cudaStream_t)s, &now));
    unsigned how = now == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : 0;
    TRY(d, cudaEventRecordWithFlags((cudaEvent_t)e, (cudaStream_t)s, how));
    return SK_OK;
}

static sk_status cuda_event_wait(sk_device *d, sk_event *e, sk_stream *s)
{
    TRY(d, enter(d));
    TRY(d, cudaStreamWaitEvent((cudaStream_t)s, (cudaEvent_t)e, 0));
    return SK_OK;
}

static sk_status cuda_event_done(sk_device *d, sk_event *x, bool *out)
{
    TRY(d, enter(d));
    cudaError_t e = cudaEventQuery((cudaEvent_t)x);
    *out = e == cudaSuccess;
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return SK_OK;
    }
    TRY(d, e);
    return SK_OK;
}

static sk_status cuda_event_seconds(sk_device *d, sk_event *from, sk_event *to, double *out)
{
    float ms = 0; /* the clock ticks every half microsecond */
    TRY(d, enter(d));
    TRY(d, cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to));
    *out = 1e-3 * (double)ms;
    return SK_OK;
}

const sk_device_kind sk_device_cuda = {
    "cuda",           cuda_open,         cuda_look,         cuda_pool_open,     cuda_pool_close,
    cuda_copy,        cuda_stream_open,  cuda_stream_close, cuda_stream_sync,   cuda_event_open,
    cuda_event_close, cuda_event_record, cuda_event_wait,   cuda_event_seconds, cuda_zero,
    cuda_stream_done, cuda_pinned_open,  cuda_pinned_close, cuda_pin,           cuda_unpin,
    cuda_graph_begin, cuda_graph_end,    cuda_graph_launch, cuda_graph_close,   cuda_count,
    cuda_enter,       cuda_event_mark,   cuda_tools,        cuda_event_done,
};
