/* op_price.c - prices of kernels and links by hand, and machine files with tables.
 *
 * Products are counted in tiles and rounds; a measured product has its own time, and one between
 * two that are off by the same factor has that factor; attention has half of its rate at
 * attention_ramp keys; scores in memory add their bytes; rings of NCCL use every network card. */
#include "plan/machine.h"

#include "lib/check.h"

#include <math.h>
#include <unistd.h>

static sk_arena arena;

static bool near(double found, double wanted)
{
    bool ok = fabs(found - wanted) <= 1e-9 * fabs(wanted);
    if (!ok) printf("found %.17g, wanted %.17g\n", found, wanted);
    return ok;
}

/* 100 multiprocessors, each of 1 flop a second. */
static sk_machine device(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10, .ranks_per_host = 4, .overhead = 0};
    m.kernels.sms = 100;
    return m;
}

static double product(const sk_machine *m, int64_t batch, int64_t rows, int64_t cols, int64_t k)
{
    sk_kernel_shape s = {.kind = SK_KERNEL_PRODUCT, .type = SK_BF16, .batch = batch};
    s.m = rows, s.n = cols, s.k = k;
    return sk_machine_compute(m, &s, 2.0 * (double)(batch * rows * cols * k), 1);
}

static void tiles(void)
{
    sk_machine m = device();
    double tile = 2.0 * 256 * 128; /* seconds for each term of the sum */
    m.memory_rate = 1e-3;          /* sums that are split are never worth it */
    check(near(product(&m, 1, 2560, 1280, 64), tile * 64));     /* 100 tiles, one round */
    check(near(product(&m, 2, 2560, 1280, 64), 2 * tile * 64)); /* two */
    check(product(&m, 1, 2561, 1280, 64) > tile * 64 * 1.01);   /* a row more: another round */
    check(product(&m, 1, 64, 64, 64) < 0.2 * tile * 64);        /* one small tile is chosen */
    m.kernels.ramp = 16;
    check(near(product(&m, 1, 2560, 1280, 64), tile * 80));
    m.kernels.sustained = 0.5;
    check(near(product(&m, 1, 2560, 1280, 64), 2 * tile * 80));
    m = device(), m.memory_rate = 1e12; /* a long sum of one tile is split */
    check(product(&m, 1, 128, 128, 1 << 16) < 0.1 * 2 * 128 * 128 * (1 << 16));
    m.kernels.sms = 0;
    check(near(product(&m, 3, 7, 5, 11), 2.0 * 3 * 7 * 5 * 11 / 100));
}

static void types(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10};
    sk_kernel_shape s = {.kind = SK_KERNEL_PRODUCT, .type = SK_F32, .batch = 1, .m = 8, .n = 8};
    s.k = 8;
    check(near(sk_machine_compute(&m, &s, 1024, 1), 10.24)); /* not known: as 16 bits */
    m.kernels.flops_f32 = 10, m.kernels.flops_fp8 = 1000;
    check(near(sk_machine_compute(&m, &s, 1024, 1), 102.4));
    s.type = SK_BF16, s.fp8 = true;
    check(near(sk_machine_compute(&m, &s, 1024, 1), 1.024));
    m.per_thread = true;
    check(near(sk_machine_compute(&m, &s, 1024, 4), 1.024 / 4));
    m.unit = true;
    check(sk_machine_compute(&m, &s, 1024, 4) == 0);
}

static void measured(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10};
    m.kernels.n_products = 2;
    m.kernels.product[0] = (sk_product_rate){SK_BF16, false, 64, 64, 64, 50, 1};
    m.kernels.product[1] = (sk_product_rate){SK_BF16, false, 4096, 64, 64, 50, 1};
    check(fabs(product(&m, 1, 64, 64, 64) / (2.0 * 64 * 64 * 64 / 50) - 1) < 1e-4);
    check(near(product(&m, 1, 512, 64, 64), 2.0 * 512 * 64 * 64 / 50));
    m.kernels.product[1].rate = 25; /* half as fast at the far end: between is between */
    double at = product(&m, 1, 512, 64, 64) * 100 / (2.0 * 512 * 64 * 64);
    check(at > 2.2 && at < 3.6);
    m.kernels.product[0].type = m.kernels.product[1].type = SK_F32; /* says nothing of bf16 */
    check(near(product(&m, 1, 64, 64, 64), 2.0 * 64 * 64 * 64 / 100));
}

/* Batches are measured apart; and however many rows there are, one that was measured has its time.
 */
static void many_measured(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10};
    sk_kernel_rates *k = &m.kernels;
    for (int i = 0; i < 40; i++) {
        double size = 16 * (1 + i);
        k->product[k->n_products++] = (sk_product_rate){SK_BF16, false, size, 64, 64, 10 + i, 1};
        k->product[k->n_products++] = (sk_product_rate){SK_BF16, false, size, 64, 64, 5, 8};
    }
    for (int i = 0; i < 40; i++) {
        int64_t size = 16 * (1 + i);
        double one = 2.0 * (double)size * 64 * 64;
        check(fabs(product(&m, 1, size, 64, 64) / (one / (10 + i)) - 1) < 0.02);
        check(fabs(product(&m, 8, size, 64, 64) / (8 * one / 5) - 1) < 0.02);
    }
}

/* Rows of attention by type, width and keys. */
static void attention_at(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10};
    sk_kernel_shape s = {.kind = SK_KERNEL_ATTENTION, .type = SK_BF16, .batch = 2, .m = 16};
    m.kernels.n_attention_at = 3;
    m.kernels.attention_at[0] = (sk_attention_at){SK_BF16, 64, 1024, 40, 20};
    m.kernels.attention_at[1] = (sk_attention_at){SK_BF16, 64, 4096, 80, 60};
    m.kernels.attention_at[2] = (sk_attention_at){SK_F32, 64, 1024, 1, 1};
    s.n = 1024, s.k = 64;
    check(fabs(sk_machine_compute(&m, &s, 1000, 1) / (1000 / 40.0) - 1) < 1e-4);
    s.kind = SK_KERNEL_ATTENTION_GRAD;
    check(fabs(sk_machine_compute(&m, &s, 1000, 1) / (1000 / 20.0) - 1) < 1e-4);
    s.n = 2048;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / sqrt(20.0 * 60.0)));
    s.type = SK_F32, s.n = 1024;
    check(fabs(sk_machine_compute(&m, &s, 1000, 1) / 1000 - 1) < 1e-4);
    m.per_thread = true;
    check(fabs(sk_machine_compute(&m, &s, 1000, 4) / 250 - 1) < 1e-4);
}

/* Rows of other kernels: a power between two, a rate above, down to an empty kernel below. */
static void ops(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10, .overhead = 1};
    sk_kernel_rates *k = &m.kernels;
    check(sk_machine_op(&m, "add", SK_F32, 100, 1) < 0);
    k->op[k->n_ops++] = (sk_measured_op){"add", SK_F32, 1e6, 100};
    check(sk_machine_op(&m, "mul", SK_F32, 100, 1) < 0);
    k->op[k->n_ops++] = (sk_measured_op){"add", SK_F32, 1e4, 10};
    k->op[k->n_ops++] = (sk_measured_op){"add", SK_BF16, 1e4, 30};
    k->op[k->n_ops++] = (sk_measured_op){"any", SK_F32, 1e4, 7};
    check(near(sk_machine_op(&m, "add", SK_F32, 10000, 1), 10));
    check(near(sk_machine_op(&m, "add", SK_F32, 100000, 1), sqrt(1000)));
    check(near(sk_machine_op(&m, "add", SK_F32, 10000000, 1), 1000));
    check(near(sk_machine_op(&m, "add", SK_F32, 0, 1), 1 + 9e-4));
    check(near(sk_machine_op(&m, "add", SK_BF16, 20000, 1), 60));
    check(near(sk_machine_op(&m, "add", SK_F16, 1000000, 1), 100)); /* of another type */
    check(near(sk_machine_op(&m, "mul", SK_BF16, 20000, 1), 14));
    check(!sk_machine_scale(&m, "memory_rate", 2));
    check(near(sk_machine_op(&m, "add", SK_F32, 10000, 1), 5));
    m.per_thread = true;
    check(near(sk_machine_op(&m, "add", SK_F32, 10000, 5), 1));
    m.unit = true;
    check(sk_machine_op(&m, "add", SK_F32, 10000, 1) < 0);
}

static void attention(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10};
    sk_kernel_shape s = {.kind = SK_KERNEL_ATTENTION, .type = SK_BF16, .batch = 2, .m = 16};
    s.n = 32, s.k = 64;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 10)); /* nothing known: flops */
    m.kernels.n_widths = 2, m.kernels.attention_ramp = 32;
    m.kernels.attention[0] = (sk_attention_rate){64, 40, 20};
    m.kernels.attention[1] = (sk_attention_rate){128, 80, 60};
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 20.0)); /* 32 keys: half of 40 */
    s.kind = SK_KERNEL_ATTENTION_GRAD;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 10.0));
    s.k = 96;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 20.0)); /* in the middle: 40 */
    s.k = 256;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 30.0)); /* beyond: the last */
    s.k = 32;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 5.0)); /* below: by the width */
    m.engine.flash = 0.5;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 2.5));
    m.kernels.sustained = 0.5; /* attention was timed as it runs */
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 2.5));
    m.kernels.older = 0.25;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 2.5));
    m.engine.older = true;
    check(near(sk_machine_compute(&m, &s, 1000, 1), 1000 / 0.625));
    m.kernels.sustained = 0;
    m.engine.scores_in_memory = true;
    double flops = 2.0 * 2 * 16 * 32 * 32;
    check(near(sk_machine_compute(&m, &s, 1, 1), 4 * flops / 100 + 19.0 * 2 * 16 * 32 / 10));
    s.kind = SK_KERNEL_ATTENTION;
    check(near(sk_machine_compute(&m, &s, 1, 1), 2 * flops / 100 + 11.0 * 2 * 16 * 32 / 10));
}

static void kernels(void)
{
    sk_machine m = {.flops = 100, .memory_rate = 10, .overhead = 0.5};
    m.engine.stream = 2;
    m.engine.loss = 5;
    check(near(sk_machine_kernel(&m, 3, 20, SK_KERNEL_PRODUCT), 3.5));
    check(near(sk_machine_kernel(&m, 3, 20, SK_KERNEL_STREAM), 4.5));
    check(near(sk_machine_kernel(&m, 3, 20, SK_KERNEL_LOSS), 10.5));
    check(near(sk_machine_kernel(&m, 3, 50, SK_KERNEL_ATTENTION), 5.5));
    m.engine.loss = 0; /* as skein */
    check(near(sk_machine_kernel(&m, 1, 20, SK_KERNEL_LOSS), 2.5));
    check(sk_machine_accumulate(&m, 30) == 0);
    m.engine.accumulate = 6;
    check(near(sk_machine_accumulate(&m, 30), 18.5));
}

static void links(void)
{
    sk_machine m = {.flops = 1, .memory_rate = 1, .ranks_per_host = 4, .nccl = true};
    m.costs.inside = (sk_link){.alpha = 1, .beta = 0.5};
    m.costs.between = (sk_link){.alpha = 3, .beta = 8};
    sk_reach four = {4, 1, 4}, eight = {8, 2, 4};
    check(near(sk_machine_coll(&m, SK_ALLGATHER, 8, four), 3 + 6 * 0.5));
    check(near(sk_machine_coll(&m, SK_ALLGATHER, 8, eight), 6 + 3 + 7 * 2.0)); /* 8 / 4 cards */
    check(near(sk_machine_coll(&m, SK_ALLREDUCE, 8, eight), 2 * (2 + 3 + 8 * 2.0 / 0.92)));
    m.engine.gathers = 0.5;
    check(near(sk_machine_coll(&m, SK_ALLGATHER, 8, eight), 6 + 3 + 7 * 4.0));
    m.engine.gathers = 0;
    m.call = 10; /* once for each call, also an all-reduce; and for each message */
    check(near(sk_machine_coll(&m, SK_ALLGATHER, 8, four), 10 + 3 + 6 * 0.5));
    check(near(sk_machine_coll(&m, SK_ALLREDUCE, 8, eight), 10 + 2 * (2 + 3 + 8 * 2.0 / 0.92)));
    check(near(sk_machine_send(&m, 4, true), 10 + 1 + 2));
    check(near(sk_machine_send(&m, 4, false), 10 + 3 + 32));
    m.call = 0;
    m.n_between = 1, m.between[0] = (sk_between_rate){2, 8, 0.0625}; /* 16 seconds a byte */
    check(near(sk_machine_coll(&m, SK_ALLGATHER, 8, eight), 6 + 3 + 7 * 4.0));
}

/* --- files --- */

static const char *file(const char *text)
{
    char *path = sk_print(&arena, "/tmp/skein-op-price-%d.txt", (int)getpid());
    FILE *f = fopen(path, "w");
    if (!f) exit(1);
    fputs(text, f);
    fclose(f);
    return path;
}

static void refused(const char *text, const char *words)
{
    sk_machine m;
    const char *path = file(text);
    fails(sk_machine_read(&arena, path, &m), SK_ECONF, words);
    remove(path);
}

static void files(void)
{
    sk_machine m, again;
    check(!sk_machine_read(&arena, "h100-8:megatron-2021", &m) && !m.overlap && m.nccl);
    check(m.engine.scores_in_memory && m.kernels.sms == 132);
    check(m.call == 30e-6 && m.kernels.older == 0.62 && m.engine.accumulate == 6);
    check(!sk_machine_read(&arena, "a100-8:deepspeed-2022", &m) && m.engine.gather_each);
    check(!sk_machine_read(&arena, "h200-8:nanotron", &m) && m.engine.older &&
          m.engine.loss == 6.5);
    fails(sk_machine_read(&arena, "h100-8:caffe", &m), SK_EUSAGE, ":nemo");
    const char *path = file("like: a100-8:fsdp\nproduct: bf16 64 128 256 1e12\n"
                            "product: fp8 4096 4096 4096 2e12\nattention: 32 1e12 2e12\n"
                            "product: bf16 64 128 256 3e12 8\nattention_at: f32 64 512 3e12 2e12\n"
                            "op: layernorm bf16 2.5e7 1.25e-5\nop: any f32 8 1e-6\n"
                            "step: 4e-5\ncrowd: 1.25\nissue: 3e-6\nversion: 2\n"
                            "between: 4 1e6 2e9\nbetween: 8 1e6 1e9\nhost_launch: 1e-5\n"
                            "call: 2e-5\nloss: 3\naccumulate: 10\nolder: 0.5\ngather_each: yes\n"
                            "older_attention: no\n");
    check(!sk_machine_read(&arena, path, &m));
    check(m.kernels.n_products == 3 && m.kernels.product[1].fp8 && m.kernels.product[0].k == 256);
    check(m.kernels.n_widths == 1 && m.n_between == 2 && m.engine.host_launch == 1e-5);
    check(!sk_machine_write(&arena, path, &m) && !sk_machine_read(&arena, path, &again));
    again.doc = m.doc;
    check(again.kernels.n_products == 3 && again.kernels.product[1].rate == 2e12);
    check(again.kernels.n_widths == 1 && again.kernels.attention[0].backward == 2e12);
    check(again.kernels.sms == m.kernels.sms && again.kernels.flops_f32 == m.kernels.flops_f32);
    check(again.engine.stream == m.engine.stream && again.engine.flash == m.engine.flash);
    check(again.kernels.product[0].batch == 1 && again.kernels.product[2].batch == 8);
    check(again.step == 4e-5 && again.crowd == 1.25 && again.issue == 3e-6 &&
          again.kernels.n_ops == 2);
    check(!strcmp(again.kernels.op[0].name, "layernorm") && again.kernels.op[0].type == SK_BF16);
    check(again.kernels.op[0].bytes == 2.5e7 && again.kernels.op[0].seconds == 1.25e-5);
    check(again.kernels.n_attention_at == 1 && again.kernels.attention_at[0].type == SK_F32);
    check(again.kernels.attention_at[0].keys == 512 &&
          again.kernels.attention_at[0].forward == 3e12);
    check(again.call == 2e-5 && again.engine.loss == 3 && again.engine.accumulate == 10);
    check(again.kernels.older == 0.5 && again.engine.gather_each && !again.engine.older);
    check(again.n_between == 2 && again.between[1].rate == 1e9 && again.nccl == m.nccl);
    remove(path);
    refused("like: h100-8\nproduct: bf16 64 128 1e12\n", "TYPE M N K FLOPS");
    refused("like: h100-8\nproduct: bf16 64 128 nan 1e12\n", "TYPE M N K FLOPS");
    refused("like: h100-8\nattention: 64 1 1\nattention: 32 1 1\n", "ascending width");
    refused("like: h100-8\nproduct: bf16 64 128 256 1e12 0\n", "TYPE M N K FLOPS");
    refused("like: h100-8\nattention_at: 64 512 1 1\n", "TYPE WIDTH KEYS");
    refused("like: h100-8\nop: add f32 100\n", "NAME TYPE BYTES SECONDS");
    refused("like: h100-8\nop: add f33 100 1\n", "NAME TYPE BYTES SECONDS");
    refused("like: h100-8\nop: add f32 100 0\n", "NAME TYPE BYTES SECONDS");
    refused("like: h100-8\nversion: 3\n", "1 or 2");
    refused("like: h100-8\nbetween: 1 1e6 1e9\n", "HOSTS BYTES RATE");
    refused("like: h100-8\nengine: caffe\n", "a profile");
    refused("like: h100-8\nscores: disk\n", "flash or memory");
    refused("like: h100-8:caffe\n", "no built-in");
    refused("like: h100-8\nsustained: 2\n", "sustained is '2'");
}

int main(void)
{
    tiles();
    types();
    measured();
    many_measured();
    attention_at();
    ops();
    attention();
    kernels();
    links();
    files();
    sk_arena_end(&arena);
    printf("op_price: %d checks, %d bad\n", checks, bad);
    return bad > 0;
}
