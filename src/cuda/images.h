/* The fat binaries in the library: one for each src/cuda/<op>.cu. A build without nvcc has none. */
#ifndef TIGON_CUDA_IMAGES_H
#define TIGON_CUDA_IMAGES_H

#include "cuda/driver.h"

bool cuda_images_built(void);
/* Loads all of them once in the process, so that no op does; the driver's code of the first that fails. */
int cuda_images_load(const cu_api *cu);
/* The loaded image; NULL: there is none of that name. */
void *cuda_image_library(const char *name);

#endif
