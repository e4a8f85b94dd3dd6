/* A user's program, built outside the tree against the installed package. Prints the version; fails when the library
 * that it runs with is not the one whose headers it was compiled with. */
#include <stdio.h>
#include <tigon/tigon.h>

int main(void) {
  int headers = TIGON_VERSION_MAJOR * 10000 + TIGON_VERSION_MINOR * 100 + TIGON_VERSION_PATCH;
  if (tigon_version() != headers) {
    fprintf(stderr, "headers %d, library %d\n", headers, tigon_version());
    return 1;
  }
  printf("%d.%d.%d\n", TIGON_VERSION_MAJOR, TIGON_VERSION_MINOR, TIGON_VERSION_PATCH);
  return 0;
}
