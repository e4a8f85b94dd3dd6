/* What the launcher and the kernel of preference_loss agree on. */
#ifndef TIGON_CUDA_PREFERENCE_LOSS_H
#define TIGON_CUDA_PREFERENCE_LOSS_H

enum { PREFERENCE_THREADS = 256 }; /* threads of the one block */

#endif
