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

/* The build writes TIGON_CUDA_TARGET(sm, ptx) for each, and how it was asked for them. */
static const cuda_target targets[] = {
#ifdef TIGON_HAVE_CUDA_IMAGES
#define TIGON_CUDA_TARGET(sm, ptx) {sm, ptx},
#include "tigon_cuda_targets.def"
#undef TIGON_CUDA_TARGET
#else
#define TIGON_CUDA_TARGETS ""
#define TIGON_CUDA_MAJOR 0
#endif
    {0, false}};
enum { TARGETS = sizeof targets / sizeof *targets - 1 };

static bool is_newer(const cuda_target *a, const cuda_target *b) { return !b || a->sm > b->sm; }

const cuda_target *cuda_target_for(const cuda_target *of, int count, int sm) {
  const cuda_target *code = NULL, *ptx = NULL;
  for (int i = 0; i < count; ++i) {
    if (of[i].sm > sm) continue;
    if (of[i].ptx && is_newer(&of[i], ptx)) ptx = &of[i];
    if (!of[i].ptx && of[i].sm / 10 == sm / 10 && is_newer(&of[i], code)) code = &of[i];
  }
  return code ? code : ptx;
}

int cuda_images_target(int sm) {
  const cuda_target *target = cuda_target_for(targets, TARGETS, sm);
  return target ? target->sm : 0;
}

bool cuda_images_wgmma(int sm) {
  const cuda_target *target = cuda_target_for(targets, TARGETS, sm);
  return sm == 90 && target && target->sm == 90 && !target->ptx;
}

const char *cuda_images_targets(void) { return TIGON_CUDA_TARGETS; }
int cuda_images_major(void) { return TIGON_CUDA_MAJOR; }

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
