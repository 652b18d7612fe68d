/* Runs one job of the fused kernel that arrives on standard input, and writes all arrays back to standard output.
 * It is compiled together with the kernel for another processor, and run in an emulator. */
#include "fused.c"
#include <stdio.h>

enum { ARRAYS = 6 };                                  /* the pointers at the beginning of a Tensor */

static void *taken(int64_t bytes)
{
    void *memory = malloc(bytes ? (size_t)bytes : 1);
    if (!memory || fread(memory, 1, (size_t)bytes, stdin) != (size_t)bytes) exit(2);
    return memory;
}

int main(void)
{
    Job *job = taken(sizeof(Job));
    Settings *settings = taken(sizeof(Settings));
    settings->signed_code = taken(sizeof(Dynamic));
    settings->unsigned_code = taken(sizeof(Dynamic));
    Tensor *tensors = taken(job->count * (int64_t)sizeof(Tensor));
    int64_t *sizes = taken(job->count * ARRAYS * (int64_t)sizeof(int64_t));
    job->settings = settings;
    job->tensors = tensors;
    for (int64_t i = 0; i < job->count * ARRAYS; i++) ((void **)&tensors[i / ARRAYS])[i % ARRAYS] = taken(sizes[i]);
    qlocaladam_work(job);
    for (int64_t i = 0; i < job->count * ARRAYS; i++)
        fwrite(((void **)&tensors[i / ARRAYS])[i % ARRAYS], 1, (size_t)sizes[i], stdout);
    return job->out_of_memory;
}
