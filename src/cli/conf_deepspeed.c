/* conf_deepspeed.c - a DeepSpeed config given as FILE: refused with the keys that say the same
 * here.
 *
 * It is not translated in silence: "auto", schedulers and dozens of tuning keys have no
 * counterpart, and the number of ranks stands elsewhere. */
#include "cli/setting.h"
#include "data/data_files.h"
#include "layout/word.h"
#include "tensor/strict.h"

#include <jansson.h>
#include <string.h>

/* A key of DeepSpeed (with a dot: a member of an object) and what to write here; %s is the value.
 */
typedef struct same {
    const char *key, *say;
} same;

static const same keys[] = {
    {"train_batch_size", "train.batch=%s"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch=%s"},
    {"gradient_clipping", "optim.clip=%s"},
    {"optimizer.params.lr", "optim.lr=%s"},
    {"optimizer.params.eps", "optim.eps=%s"},
    {"optimizer.params.weight_decay", "optim.weight_decay=%s"},
    {"scheduler.params.warmup_num_steps", "optim.warmup=%s"},
    {"fp16.enabled", "train.dtype=f16"},
    {"bf16.enabled", "train.dtype=bf16"},
    {"bfloat16.enabled", "train.dtype=bf16"},
    {0},
};

/* Words of a layout: those that the table of words has. */
static const same words[] = {
    {"zero_optimization.stage", "zero=%s"},
    {"gradient_accumulation_steps", "micro=%s"},
    {"zero_optimization.offload_optimizer.device", "offload=state"},
    {0},
};

static const json_t *member(sk_arena *a, const json_t *root, const char *key)
{
    for (const char *dot; root && (dot = strchr(key, '.')); key = dot + 1)
        root = json_object_get(root, sk_print(a, "%.*s", (int)(dot - key), key));
    return json_object_get(root, key);
}

/* NULL: nothing that has an equivalent here. */
static const char *value(sk_arena *a, const json_t *v)
{
    const char *s = json_string_value(v);
    if (json_is_integer(v)) return sk_print(a, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v)) return sk_real_print(a, json_real_value(v));
    return json_is_true(v) || (s && strcmp(s, "auto") && strcmp(s, "none")) ? "" : NULL;
}

/* Is "WORD=..." or "KEY=..." known? */
static bool is_known(sk_arena *a, const char *say)
{
    const char *name = sk_print(a, "%.*s", (int)strcspn(say, "="), say);
    return sk_word_find(name) || sk_conf_is_key(name);
}

static void list(sk_out *o, const json_t *root, const same *k)
{
    for (; k->key; k++) {
        if (!is_known(o->arena, k->say)) continue;
        const char *s = value(o->arena, member(o->arena, root, k->key)), *at = strstr(k->say, "%s");
        if (!s || (at && !*s)) continue;
        sk_out_add(o, " %.*s%s", at ? (int)(at - k->say) : (int)strlen(k->say), k->say,
                   at ? s : "");
    }
}

sk_status sk_conf_no_deepspeed(sk_arena *a, const char *path, const char *text, size_t n)
{
    static const sk_strict limits = {.depth = 16, .objects = 10000, .values = 100000};
    json_t *root = NULL;
    sk_out said = {.arena = a}, layout = {.arena = a};
    if (!sk_ends_with(path, ".json") || sk_strict_json(path, text, n, &limits, &root)) return SK_OK;
    bool is = json_object_get(root, "zero_optimization") ||
              json_object_get(root, "train_micro_batch_size_per_gpu");
    if (is) {
        list(&said, root, keys);
        list(&layout, root, words);
    }
    json_decref(root);
    if (!is) return SK_OK;
    return sk_fail(SK_EUSAGE,
                   "command line: %s is a config of DeepSpeed, which skein does not read; its "
                   "equivalent is layout=\"dp=N%s\"%s",
                   path, layout.s ? layout.s : "", said.s ? said.s : "");
}
