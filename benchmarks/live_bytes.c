/* Preloaded before libc: counts the bytes that are allocated and not yet freed, and the most there ever were. */

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static _Atomic long live, peak;

static void *counted(void *memory)
{
    long now = live += memory ? (long)malloc_usable_size(memory) : 0, most = peak;
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {}
    return memory;
}

/* From now on the peak is what is live now. */
long live_bytes_mark(void) { return peak = live; }
long live_bytes_peak(void) { return peak; }

void free(void *memory)
{
    if (memory) live -= (long)malloc_usable_size(memory);
    __libc_free(memory);
}

void *realloc(void *memory, size_t size)
{
    long before = memory ? (long)malloc_usable_size(memory) : 0;
    void *moved = __libc_realloc(memory, size);
    if (moved || !size) live -= before;
    return counted(moved);
}

void *malloc(size_t size) { return counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void *memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *made = counted(__libc_memalign(alignment, size));
    if (!made) return ENOMEM;
    *memory = made;
    return 0;
}
