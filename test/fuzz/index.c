/* libFuzzer target: model.safetensors.index.json, which says in which shard each tensor of a model
 * lies.  The model is a tiny one, and has one shard. */
#include "base/strings.h"
#include "lib/fuzz.h"
#include "tensor/safetensors.h"
#include "train/hf.h"

#include <endian.h>
#include <string.h>

static const sk_hf entries[] = {{"transformer.wte.weight", "wte", "v,c", 0, 0, 0},
                                {"transformer.ln.weight", "ln", "c", 0, 0, 0}};

static bool listed(sk_arena *a, const sk_hyper *h, int i, sk_hf *out)
{
    (void)a, (void)h;
    if (i < 2) *out = entries[i];
    return i < 2;
}

static const sk_model model = {.name = "fuzz", .hf_class = "Fuzz", .hf = listed};
static const sk_hf_shape shapes[] = {{"wte", "vc", {3, 2}}, {"ln", "c", {2}}};

static void write_shard(void)
{
    static const char header[] =
        "{\"transformer.wte.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
        "\"transformer.ln.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
    char file[8 + sizeof header - 1 + 32] = {0};
    uint64_t n = htole64(sizeof header - 1);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, sizeof header - 1);
    fuzz_file("a.safetensors", file, sizeof file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    float wte[6], ln[2];
    const sk_hyper h = {0};
    const sk_tensor_shard boxes[] = {
        {.name = "wte", .type = SK_F32, .n = 2, .full = {3, 2}, .size = {3, 2}, .data = wte},
        {.name = "ln", .type = SK_F32, .n = 1, .full = {2}, .size = {2}, .data = ln}};
    write_shard();
    fuzz_file("model.safetensors.index.json", data, n);
    fuzz_refused(sk_hf_check(fuzz_dir(), &model, &h, shapes, 2, sk_all_chunks), SK_EDATA);
    fuzz_refused(sk_hf_load(fuzz_dir(), &model, &h, shapes, 2, boxes, 2), SK_EDATA);
    return 0;
}
