#include "cuda/images.h"

#include <pthread.h>
#include <string.h>

/* The build writes the list, a line TIGON_CUDA_IMAGE(name) for each image, and the images as data. */
#ifdef TIGON_HAVE_CUDA_IMAGES
#define TIGON_CUDA_IMAGE(name) extern const unsigned char tigon_cuda_image_##name[];
#include "tigon_cuda_images.def"
#undef TIGON_CUDA_IMAGE
#endif

static struct image {
  const char *name;
  const void *data;
  void *library;
} images[] = {
#ifdef TIGON_HAVE_CUDA_IMAGES
#define TIGON_CUDA_IMAGE(name) {#name, tigon_cuda_image_##name, NULL},
#include "tigon_cuda_images.def"
#undef TIGON_CUDA_IMAGE
#endif
    {NULL, NULL, NULL}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool cuda_images_built(void) { return images[0].name != NULL; }

int cuda_images_load(const cu_api *cu) {
  int code = CU_SUCCESS;
  pthread_mutex_lock(&lock);
  for (struct image *i = images; i->name && code == CU_SUCCESS; ++i)
    if (!i->library) code = cu->library_load_data(&i->library, i->data, NULL, NULL, 0, NULL, NULL, 0);
  pthread_mutex_unlock(&lock);
  return code;
}

void *cuda_image_library(const char *name) {
  for (const struct image *i = images; i->name; ++i)
    if (strcmp(i->name, name) == 0) return i->library;
  return NULL;
}
