/* metrics_read.c - curves of a run: windows, targets, and files that are cut or strange. */
#include "train/metrics_read.h"
#include "base/file_io.h"
#include "base/strings.h"
#include "lib/check.h"

#include <math.h>
#include <unistd.h>

static sk_arena a;
static char dir[] = "/tmp/skein-curve-XXXXXX";

static sk_curve read_text(const char *text)
{
    sk_curve c = {0};
    const char *path = sk_print(&a, "%s/metrics.jsonl", dir);
    check(!sk_file_replace(path, text, strlen(text)));
    check(!sk_curve_read(&a, path, &c));
    return c;
}

/* Losses 100, 99, 98 ...; 32 tokens and half a second a step; a validation every 5. */
static sk_curve steps(int n)
{
    sk_out o = {.arena = &a};
    for (int i = 1; i <= n; i++) {
        sk_out_add(&o, "{\"step\":%d,\"loss\":%d,\"grad_norm\":1,\"tokens\":%d,\"ms\":500}\n", i,
                   101 - i, 32 * i);
        if (i % 5 == 0) sk_out_add(&o, "{\"step\":%d,\"val_loss\":%d}\n", i, 101 - i);
    }
    return read_text(o.s);
}

static void whole(void)
{
    sk_curve c = steps(40);
    sk_curve_point p;
    check(c.train.n == 40 && c.val.n == 8);
    check(sk_curve_loss(&c) == 62.5); /* the mean of 64, 63, 62, 61 */
    check(sk_curve_val(&c) == 61);
    check(sk_curve_reach(&c, true, 88.5, &p)); /* between 91 at step 10 and 86 at step 15 */
    check(p.step == 13 && p.tokens == 32 * 12.5 && p.seconds == 6.25);
    check(sk_curve_reach(&c, true, 96, &p) && p.step == 5);
    check(sk_curve_reach(&c, true, 1000, &p) && p.step == 5); /* at the first validation */
    check(!sk_curve_reach(&c, true, 60.9, &p));
    check(sk_curve_reach(&c, false, 91, &p) && p.step == 10); /* a window of one */
    check(sk_curve_reach(&c, false, 86.5, &p) && p.step == 15 && p.seconds == 7.5);
    check(!sk_curve_reach(&c, false, 62.4, &p));
    check(sk_curve_reach(&c, false, 62.5, &p) && p.step == 40 && p.tokens == 1280);
}

/* Accuracy of classifiers, the noise scale of train.noise, a validation before any step. */
static void extras(void)
{
    sk_curve c = read_text("{\"step\":0,\"val_loss\":2.5,\"val_accuracy\":0.125}\n");
    check(c.train.n == 0 && c.val.n == 1 && c.val.v[0].step == 0 && sk_curve_val(&c) == 2.5);
    check(sk_curve_accuracy(&c) == 0.125);
    c = read_text("{\"step\":1,\"loss\":2,\"ms\":1,\"grad_var\":3,\"noise_scale\":41.5}\n"
                  "{\"step\":2,\"loss\":2,\"ms\":1,\"grad_var\":3,\"noise_scale\":null}\n"
                  "{\"step\":3,\"loss\":2,\"ms\":1}\n"
                  "{\"step\":3,\"val_loss\":2}\n");
    check(c.train.n == 3 && c.train.v[0].noise == 41.5);
    check(isnan(c.train.v[1].noise) && isnan(c.train.v[2].noise));
    check(isnan(sk_curve_accuracy(&c)) && isnan(c.val.v[0].noise));
}

static void strange(void)
{
    sk_curve c;
    sk_curve_point p;
    check(!sk_curve_read(&a, sk_print(&a, "%s/nothing", dir), &c) && !c.train.n);
    check(isnan(sk_curve_loss(&c)) && isnan(sk_curve_val(&c)));
    check(!sk_curve_reach(&c, true, 1e9, &p) && !sk_curve_reach(&c, false, 1e9, &p));
    c = read_text("");
    check(!c.train.n);
    c = read_text("{\"step\":1,\"loss\":3,\"tokens\":8,\"ms\":10}\n"
                  "{\"step\":2,\"loss\":null,\"tokens\":16,\"ms\":10}\n"
                  "nonsense\n{}\n\n{\"step\":-4,\"loss\":1,\"ms\":1}\n{\"step\":\"x\",\"loss\":1}\n"
                  "{\"step\":3,\"loss\":2,\"tokens\":null,\"ms\":null}\n"
                  "{\"step\":4,\"val_loss\":null}\n"
                  "{\"step\":5,\"loss\":1,\"tokens\":3");
    check(c.train.n == 3 && c.val.n == 1);
    check(isnan(c.train.v[1].loss) && isnan(sk_curve_val(&c)));
    check(c.train.v[2].tokens == 16 && fabs(c.train.v[2].seconds - 0.02) < 1e-12);
    check(sk_curve_reach(&c, false, 2, &p) && p.step == 3);
    check(!sk_curve_reach(&c, true, 9, &p));
    fails(sk_curve_read(&a, dir, &c), SK_EIO, dir); /* a directory is not an empty run */
}

int main(void)
{
    check(mkdtemp(dir));
    whole();
    extras();
    strange();
    unlink(sk_print(&a, "%s/metrics.jsonl", dir));
    rmdir(dir);
    sk_arena_end(&a);
    printf("%d checks, %d wrong\n", checks, bad);
    return bad != 0;
}
