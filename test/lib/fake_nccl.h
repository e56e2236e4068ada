/* fake_nccl.h - for tests: GPUs that are none (lib/fake_gpu.h) of ranks that are threads of one
 * process talk to each other, if it calls this. */
#ifndef SK_TEST_FAKE_NCCL_H
#define SK_TEST_FAKE_NCCL_H

void sk_fake_nccl(void);

#endif
