#include <stdio.h>
#include <talweg/talweg.h>

int main(void) {
  talweg_group* group = NULL;
  float one = 1;
  if (talweg_join(NULL, &group) != TALWEG_OK ||
      talweg_all_reduce(group, &one, &one, 1, TALWEG_F32, TALWEG_SUM) != TALWEG_OK) {
    fprintf(stderr, "consumer: %s\n", talweg_error_message());
    return 1;
  }
  if (talweg_rank(group) == 0) printf("consumer in C: %d ranks, sum %g\n", talweg_size(group), one);
  talweg_leave(group);
  return 0;
}
