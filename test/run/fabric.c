/* fabric.c - collectives and messages of run/gpu/fabric.h between fake GPUs (lib/fake_gpu.h,
 * lib/fake_nccl.h): packing, parts, roots and ids are tried without a GPU.  test/cuda/fabric.cu
 * takes the same cases through NCCL. */
#include "lib/check.h"
#include "lib/fabric_cases.h"
#include "lib/fake_gpu.h"
#include "lib/fake_nccl.h"

int main(void)
{
    sk_fake_nccl();
    for (int delay = 0; delay <= 100; delay += 100) {
        sk_fake_gpu(delay);
        for (int n = 2; n <= 4; n++) check(!sk_fabric_cases(n, "cuda", false, NULL));
    }
    printf("%d rounds, %d bad\n", checks, bad);
    return bad != 0;
}
