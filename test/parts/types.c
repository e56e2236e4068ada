/* types.c - every launch of every model that is shipped meets a GPU half that takes its
 * types.
 *
 * Without a GPU: programs are compiled for one, and each instruction is held to what its GPU half
 * declares (run/gpu/gpu_support.h): operands and results of ops, gradients, state and weights of
 * updates, elements of codecs and of the engine's own kernels.  Presets, options of models, layouts
 * and optimizers are words of the command line; each is tried in f32, bf16 and f16.  Last come all
 * (op, types) that were met: test/cuda/parts.cu launches them on a GPU. */
#include "lib/check.h"

#include "base/strings.h"
#include "cli/conf.h"
#include "run/gpu/gpu_support.h"
#include "train/setup.h"

#include <unistd.h>

enum { MOST_WORDS = 16, MOST_MET = 512 };

static int programs, launches, refused;
static bool listing; /* show all that was met, and why words were refused */
static char met[MOST_MET][64];
static int n_met;

/* A table entry alone is no kernel: the file must be there, under the name that the build asks. */
static bool has_half(const char *kind, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "parts/%s/%s.cu", kind, name);
    for (char *p = path; *p; p++) *p = *p == '-' ? '_' : *p;
    return !access(path, R_OK);
}

static void remember(const sk_program *p, const sk_inst *in)
{
    sk_args a;
    char line[64];
    int n = 0;
    sk_inst_args(p, in, NULL, &a);
    n += snprintf(line, sizeof line, "%s", in->node->op->name);
    for (int i = 0; i < a.n_in + a.n_out && n < (int)sizeof line; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%s",
                      i == a.n_in ? ">"
                      : i         ? ","
                                  : " ",
                      sk_dtype_name(sk_args_view(&a, i)->type));
    for (int i = 0; i < n_met; i++)
        if (!strcmp(met[i], line)) return;
    sk_assert(n_met < MOST_MET);
    strcpy(met[n_met++], line);
}

/* Instruction pc of a program that these words made. */
static void one(const sk_program *p, int pc, const char *words)
{
    const sk_inst *in = &p->insts.v[pc];
    bool half = true;
    if (in->act == SK_DO_OP) half = has_half("op", in->node->op->name), remember(p, in);
    if (in->codec) half = has_half("codec", in->codec->name);
    if (in->act == SK_DO_UPDATE) half = has_half("optim", p->optim->name);
    bool takes = !sk_gpu_supports(p, pc);
    launches++;
    if (half && takes) return;
    printf("%s, instruction %d: %s\n", words, pc, half ? sk_error_line() : "it has no GPU half");
    check(half && takes);
}

/* The words' programs; SK_ECONF where they do not go together. */
static sk_status hold(const char *words)
{
    sk_arena a = {0};
    char *argv[MOST_WORDS], *text = sk_print(&a, "%s", words);
    int argc = 0, before = bad;
    for (char *w = strtok(text, ";"); w; w = strtok(NULL, ";")) argv[argc++] = w;
    sk_job *job = sk_new(&a, sk_job);
    sk_setup *s = sk_new(&a, sk_setup);
    sk_status st = sk_conf_load(&a, argc, argv, job, NULL);
    job->ranks = 0; /* as many as the layout says */
    if (!st) st = sk_setup_program(&a, job, true, s);
    for (int r = 0; !st && r < s->n_ranks; r++) {
        programs++;
        for (int pc = 0; pc < s->programs[r]->insts.n && bad < before + 3; pc++)
            one(s->programs[r], pc, words);
    }
    sk_arena_end(&a);
    return st;
}

static const char *const types[] = {"f32", "bf16", "f16"};

/* In every type.  `must`: it may not be refused. */
static void tried(const char *model, const char *words, bool must)
{
    char all[512];
    for (int i = 0; i < 3; i++) {
        snprintf(all, sizeof all, "device=cuda;model=%s;train.dtype=%s;%s", model, types[i], words);
        sk_status st = hold(all);
        if (!st) continue;
        refused++;
        if (must || listing) printf("%s: %s\n", all, sk_error_line());
        check(!must && (st == SK_ECONF || strstr(sk_error_line(), "there is no \"model.")));
    }
}

/* Options that change which ops there are, and layouts that do. */
static const char *const options[] = {
    "model.dropout=0.1",
    "model.tie_word_embeddings=true",
    "model.tie_word_embeddings=false",
    "model.hidden_act=gelu",
    "model.attention_bias=true;model.mlp_bias=true",
    "model.head_dim=24",
    "model.rope_type=linear;model.rope_factor=2",
    "model.scale_attn_by_inverse_layer_idx=true",
    "model.capacity_factor=1",
    "model.capacity_factor=0",
    "model.n_shared_experts=2",
    "model.expert_groups=2",
    "model.router_bias_update_speed=0.001",
    "model.router_aux_loss_coef=0",
    "model.num_experts_per_tok=1",
    "model.n_shared_experts=1;model.expert_groups=2;model.router_bias_update_speed=0.01",
    "model.n_shared_experts=1;model.expert_groups=2;model.capacity_factor=1.25",
    "model.num_experts_per_tok=2;model.expert_groups=2;model.router_bias_update_speed=0.01",
    "train.matmul=fp8",
    "train.dropless=1;model.capacity_factor=1",
    "train.dropless=1;model.capacity_factor=1;layout=ep=2",
    "layout=keep=cheap",
    "layout=recompute=full",
    "layout=recompute=selective",
    "layout=gist",
    "layout=gist=60",
    "layout=slices=4",
    "layout=slices=2 recompute=full",
    "layout=dp=2 zero=1",
    "layout=dp=2 zero=2 micro=2",
    "layout=dp=2 zero=3",
    "layout=dp=2 zero=3 weights=int8 grads=int4 feedback",
    "layout=dp=2 zero=3 weights=fp8 grads=bf16",
    "layout=dp=2 grads=f16",
    "layout=tp=2",
    "layout=tp=2 sp",
    "layout=tp=2 sp overlap=2",
    "layout=cp=2",
    "layout=cp=2 by=ring",
    "layout=cp=2 by=exchange",
    "layout=ep=2",
    "layout=ep=2 tp=2",
    "layout=pp=2 micro=2",
    "layout=pp=2 micro=4 schedule=zb-h1",
    "layout=pp=2 dp=2 tp=2 zero=3 micro=2",
    "layout=offload=state",
    "layout=offload=all",
    "order=canonical",
    "order=canonical;layout=dp=2 tp=2",
    "optim.name=lamb",
    "optim.name=sgd",
    "optim.name=sgd-pb",
    "optim.state=bf16",
    "optim.state=int8",
    "optim.name=adam8bit;layout=dp=2 zero=1",
    "optim.name=lamb;optim.state=bf16;layout=dp=2 zero=1",
    "optim.name=sgd-pb;optim.clip=0;layout=pp=2 schedule=pb micro=1",
};

/* With few layers and words: their number does not change which ops there are. */
static void presets(const sk_model *m)
{
    char words[256];
    for (const sk_preset *p = m->presets; p && p->name; p++) {
        const char *small = p->hyper.num_hidden_layers > 2 ? ";model.num_hidden_layers=2" : "";
        snprintf(words, sizeof words, "train.batch=4;train.seq=16%s", small);
        tried(p->name, words, true);
    }
    for (size_t i = 0; m->presets && i < sizeof options / sizeof *options; i++) {
        snprintf(words, sizeof words, "train.batch=4;train.seq=16;%s", options[i]);
        tried(m->presets[0].name, words, false);
    }
}

/* The declarations: as long as the op has operands, of known letters, and no op takes bytes. */
static void declared(const sk_op *op)
{
    int n_in = op->n_in, n_out = sk_op_outs(op);
    sk_args a = {.n_in = n_in, .n_out = n_out};
    check(!op->types || ((int)strlen(op->types) == n_in + 1 + n_out && op->types[n_in] == '>'));
    for (int i = 0; i < n_in + n_out; i++) check(strchr("xf4is", sk_op_type(op, n_in, i)));
    a.in[0].type = SK_U8;
    check(sk_op_takes(op, &a) == SK_ECONF);
}

/* What began this: a sum of two f32 into bf16. */
static void mixes(void)
{
    sk_args a = {.n_in = 2, .n_out = 1};
    check(!sk_op_takes(sk_op_find("add"), &a));
    a.out[0].type = SK_BF16;
    fails(sk_op_takes(sk_op_find("add"), &a), SK_ECONF,
          "add: result 0 is bf16, the GPU half needs the type of operand 0");
    a.in[0].type = a.in[1].type = SK_BF16;
    check(!sk_op_takes(sk_op_find("add"), &a));
    a.out[0].n = 1;
    a.out[0].cells[0] = 2;
    fails(sk_op_takes(sk_op_find("add"), &a), SK_ECONF, "canonical order is for f32");
}

int main(int argc, char **argv)
{
    listing = argc > 1 && !strcmp(argv[1], "list");
    for (const sk_op *const *op = sk_op_parts; *op; op++) declared(*op);
    mixes();
    for (const sk_model *const *m = sk_model_parts; *m; m++) presets(*m);
    for (int i = 0; listing && i < n_met; i++) printf("%s\n", met[i]);
    check(programs > 500);
    printf(
        "types: %d programs, %d launches, %d (op, types), %d choices of words refused; %d checks, "
        "%d bad\n",
        programs, launches, n_met, refused, checks, bad);
    return bad != 0;
}
