/* conf_hint.c - what somebody may have meant with a key that is none.
 *
 * People come from other programs: their names are known here, and are told, not
 * taken, since one thing has one key.  First the parts of a key in another order (`train.data`),
 * then the last part of a key alone (`lr`, `train.lr`), then the nearest spelling of all of these.
 */
#include "cli/setting.h"
#include "layout/word.h"

#include <ctype.h>
#include <string.h>

enum { MOST_NAMES = 512, LONGEST = 80 };

static const struct alias {
    const char *key, *words;
} aliases[] = {
    {"optim.lr", "learning_rate max_lr peak_lr base_lr"},
    {"optim.min_lr", "min_learning_rate lr_min eta_min lr_end"},
    {"optim.betas", "adam_betas beta1 beta2 adam_beta1 adam_beta2"},
    {"optim.eps", "epsilon adam_eps adam_epsilon"},
    {"optim.weight_decay", "wd decay adam_weight_decay"},
    {"optim.clip", "grad_clip clip_grad clip_grad_norm gradient_clip gradient_clipping "
                   "gradient_clip_val max_grad_norm max_norm"},
    {"optim.schedule", "scheduler lr_scheduler lr_scheduler_type lr_schedule lr_decay_style"},
    {"optim.schedule_power", "power lr_power poly_power"},
    {"optim.schedule_milestones", "milestones lr_milestones"},
    {"optim.schedule_factor", "gamma lr_gamma lr_decay_factor"},
    {"optim.schedule_shape", "lr_wsd_decay_style"},
    {"optim.schedule_start", "pct_start"},
    {"optim.schedule_div", "div_factor"},
    {"optim.warmup", "warmup_steps warmup_iters num_warmup_steps lr_warmup_steps lr_warmup_iters"},
    {"optim.name", "optimizer optimizer_name optimizer_type"},
    {"train.batch", "batch_size bs global_batch_size train_batch_size per_device_train_batch_size"},
    {"train.micro_batch", "micro_batch_size microbatch_size train_micro_batch_size_per_gpu"},
    {"train.steps",
     "max_steps max_iters train_iters num_steps n_steps total_steps iterations iters epochs "
     "num_train_epochs max_epochs"},
    {"train.seq", "seq_len seq_length sequence_length block_size context_length context_size "
                  "ctx_len max_seq_len max_seq_length max_length"},
    {"train.dtype", "precision mixed_precision torch_dtype amp fp16 bf16"},
    {"train.seed", "random_seed manual_seed"},
    {"train.threads", "num_threads n_threads omp_num_threads"},
    {"train.time", "max_time time_limit"},
    {"data.train",
     "dataset data_path data_dir data_file file train_file train_data train_data_path"},
    {"data.val", "val_data eval_data validation_file valid_data_path"},
    {"data.tokenizer", "tokenizer_name tokenizer_path"},
    {"data.order", "shuffle"},
    {"run", "output_dir out_dir save_dir run_dir log_dir logdir"},
    {"resume", "resume_from resume_from_checkpoint load init_from load_checkpoint"},
    {"ckpt.every", "save_steps save_interval checkpoint_interval save_every"},
    {"ckpt.keep", "save_total_limit keep_last"},
    {"log.every", "log_interval logging_steps log_every"},
    {"val.every", "eval_interval eval_steps eval_every val_interval"},
    {"val.batches", "eval_iters eval_batches limit_val_batches"},
    {"device", "gpu accelerator"},
    {"ranks", "nproc nproc_per_node world_size num_gpus gpus workers"},
    {"model", "model_name model_name_or_path pretrained model_path"},
    {"model.num_hidden_layers", "n_layer n_layers num_layers layers depth"},
    {"model.num_attention_heads", "n_head n_heads num_heads heads"},
    {"model.num_key_value_heads", "n_kv_heads num_kv_heads num_query_groups"},
    {"model.hidden_size", "n_embd n_embed d_model dim hidden_dim embed_dim"},
    {"model.intermediate_size", "d_ff ffn_dim ffn_hidden_size n_inner"},
    {"model.max_position_embeddings", "n_positions n_ctx"},
    {"model.vocab_size", "padded_vocab_size n_vocab"},
};
enum { N_ALIASES = sizeof aliases / sizeof *aliases };

typedef struct names { /* what may be written, and what is meant by it */
    const char *word[MOST_NAMES], *key[MOST_NAMES];
    int n;
} names;

static void add(names *l, const char *word, const char *key)
{
    if (l->n == MOST_NAMES) return;
    l->word[l->n] = word;
    l->key[l->n++] = key;
}

static void add_keys(sk_arena *a, names *l, const sk_option *options)
{
    const char *name;
    for (int i = 0; (name = sk_conf_name(a, i)); i++) add(l, name, name);
    for (int i = 0; sk_conf_model_name(i); i++) {
        const char *key = sk_print(a, "model.%s", sk_conf_model_name(i));
        add(l, key, key);
    }
    add(l, "model", "model");
    for (const sk_option *o = options; o && o->name; o++) add(l, o->name, o->name);
}

/* In the section that was written: optim.learning_rat is near to optim.learning_rate. */
static void add_aliases(sk_arena *a, names *l, const char *section, int n_section)
{
    for (int i = 0; i < N_ALIASES; i++)
        for (const char *p = aliases[i].words; *p; p += strspn(p, " ")) {
            int n = (int)strcspn(p, " ");
            add(l, sk_print(a, "%.*s%.*s", n_section, section, n, p), aliases[i].key);
            p += n;
        }
}

/* "a.b" where the key is "b.a". */
static const char *swapped(sk_arena *a, const names *l, const char *plain)
{
    const char *dot = strchr(plain, '.');
    if (!dot || strchr(dot + 1, '.')) return NULL;
    const char *other = sk_print(a, "%s.%.*s", dot + 1, (int)(dot - plain), plain);
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->word[i], other) && !strcmp(l->key[i], other)) return l->key[i];
    return NULL;
}

/* The first whose last part, or whole, is exactly this. */
static const char *exact(const names *l, const char *last)
{
    for (int i = 0; i < l->n; i++) {
        const char *dot = strrchr(l->word[i], '.');
        if (!strcmp(dot ? dot + 1 : l->word[i], last)) return l->key[i];
    }
    return NULL;
}

/* A word of a layout, or what other programs call one: a layout that has it. */
static const char *in_layout(sk_arena *a, const char *last)
{
    static const char as_in[] = "as in \"";
    const sk_word *w = sk_word_find(last);
    const char *say = w ? NULL : sk_layout_alias(last);
    if (!w && !say) say = sk_layout_value(a, last);
    const char *from = say ? strstr(say, as_in) : NULL;
    if (w) return sk_print(a, "layout=\"%s\"", sk_or_empty(w->example));
    if (from) from += strlen(as_in);
    return from ? sk_print(a, "layout=\"%.*s\"", (int)strcspn(from, "\""), from) : NULL;
}

/* In small letters, with underscores. */
static const char *plain_of(char plain[LONGEST], const char *name)
{
    size_t n = 0;
    for (; name[n] && n < LONGEST - 1; n++)
        plain[n] = (char)(name[n] == '-' ? '_' : tolower((unsigned char)name[n]));
    plain[n] = 0;
    const char *dot = strrchr(plain, '.');
    return dot ? dot + 1 : plain;
}

/* A section of keys, taken for the key in it that names a part. */
static const char *of_section(const char *name)
{
    return !strcmp(name, "optim") ? "optim.name" : NULL;
}

/* The key, or the layout with a word, that is called so here or elsewhere; NULL: there is none. */
static const char *known_as(sk_arena *a, names *l, const char *plain, const char *last,
                            const sk_option *options)
{
    add_keys(a, l, options);
    add_aliases(a, l, plain, (int)(last - plain));
    const char *key = of_section(plain);
    if (!key) key = swapped(a, l, plain);
    if (!key) key = exact(l, last);
    return key ? key : in_layout(a, last);
}

const char *sk_conf_known_as(sk_arena *a, const char *name)
{
    char plain[LONGEST];
    const char *last = plain_of(plain, name);
    return known_as(a, sk_new(a, names), plain, last, NULL);
}

const char *sk_conf_hint(sk_arena *a, const char *name, const sk_option *options)
{
    char plain[LONGEST];
    const char *last = plain_of(plain, name);
    names *l = sk_new(a, names);
    const char *key = known_as(a, l, plain, last, options);
    const char *near = key ? NULL : sk_nearest(plain, l->word, l->n);
    for (int i = 0; near && !key; i++)
        if (l->word[i] == near) key = l->key[i];
    return key ? sk_print(a, " - did you mean \"%s\"?", key) : "";
}
