/* The fat binaries in the library: one for each src/cuda/<op>.cu. A build without nvcc has none. */
#ifndef TIGON_CUDA_IMAGES_H
#define TIGON_CUDA_IMAGES_H

#include "cuda/driver.h"

bool cuda_images_built(void);
/* Machine code that the images have, or PTX, which the driver compiles for a GPU of `sm` and later. */
typedef struct cuda_target {
  int sm; /* 90: compute capability 9.0 */
  bool ptx;
} cuda_target;
/* What the driver takes on a GPU of `sm`: the newest machine code of the same major version, else the newest PTX. NULL: it has none. */
const cuda_target *cuda_target_for(const cuda_target *of, int count, int sm);
/* The compute capability of this library's code on a GPU of `sm`; 0: it has none. */
int cuda_images_target(int sm);
/* Is that the code for sm_90a, which runs on a GPU of compute capability 9.0 only? */
bool cuda_images_wgmma(int sm);
/* How the build named them: "80, 90, 100-virtual". */
const char *cuda_images_targets(void);
/* The oldest CUDA whose driver takes them, which is nvcc's major version. */
int cuda_images_major(void);
/* Loads all of them once in the process, so that no op does; the driver's code of the first that fails. */
int cuda_images_load(const cu_api *cu);
/* The loaded image; NULL: there is none of that name. */
void *cuda_image_library(const char *name);

#endif
