#include "opencl/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The ranges of all devices, in the order of addresses. */
static struct range {
  char *base;
  size_t bytes, reserved;
  void *buffer, *context;
} * ranges;
static size_t count, room;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* The first range that begins behind `address`. */
static size_t after(const char *address) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (ranges[middle].base <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool grow(void) {
  if (count < room) return true;
  const size_t wanted = room ? 2 * room : 64;
  struct range *grown = realloc(ranges, wanted * sizeof *ranges);
  if (!grown) return false;
  ranges = grown, room = wanted;
  return true;
}

static bool insert(const struct range *made) {
  pthread_rwlock_wrlock(&lock);
  const bool fits = grow();
  if (fits) {
    const size_t at = after(made->base);
    memmove(ranges + at + 1, ranges + at, (count - at) * sizeof *ranges);
    ranges[at] = *made;
    ++count;
  }
  pthread_rwlock_unlock(&lock);
  return fits;
}

/* The pages are reserved and never there, so that whoever reads them from the host is stopped. One more keeps ranges apart. */
void *opencl_range_add(void *context, void *buffer, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), reserved = (bytes / page + 2) * page;
  void *base = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return NULL;
  if (insert(&(struct range){base, bytes, reserved, buffer, context})) return base;
  munmap(base, reserved);
  return NULL;
}

bool opencl_range_share(void *context, void *shared, size_t bytes) {
  return insert(&(struct range){shared, bytes, 0, NULL, context});
}

static opencl_place place_of(const struct range *of, const void *address) {
  const size_t offset = (size_t)((const char *)address - of->base);
  return (opencl_place){of->buffer, of->buffer ? NULL : of->base, offset, of->bytes - offset};
}

bool opencl_range_remove(void *context, const void *base, opencl_place *had) {
  pthread_rwlock_wrlock(&lock);
  const size_t at = after(base);
  const bool found = at > 0 && ranges[at - 1].base == base && ranges[at - 1].context == context;
  if (found) {
    const struct range gone = ranges[at - 1];
    *had = place_of(&gone, base);
    memmove(ranges + at - 1, ranges + at, (count - at) * sizeof *ranges);
    --count;
    if (gone.reserved) munmap(gone.base, gone.reserved);
  }
  pthread_rwlock_unlock(&lock);
  return found;
}

bool opencl_range_find(void *context, const void *address, opencl_place *place) {
  pthread_rwlock_rdlock(&lock);
  const size_t at = after(address);
  const struct range *of = at > 0 ? &ranges[at - 1] : NULL;
  const bool found = of && of->context == context && (size_t)((const char *)address - of->base) <= of->bytes;
  if (found) *place = place_of(of, address);
  pthread_rwlock_unlock(&lock);
  return found;
}
