/* A libcuda that accepts everything, launches nothing, and counts launches: for the host side of a launch. */
#include <stddef.h>
#include <stdint.h>

typedef int Result;

static int64_t launches;

int64_t stub_launches(void) { return launches; }

Result cuInit(unsigned flags) { return 0; }
Result cuDeviceGetCount(int *n) { *n = 1; return 0; }
Result cuDriverGetVersion(int *v) { *v = 13000; return 0; }
Result cuGetErrorString(Result e, const char **s) { *s = "stub"; return 0; }
Result cuCtxGetCurrent(void **c) { *c = (void *)1; return 0; }
Result cuCtxSetCurrent(void *c) { return 0; }
Result cuCtxGetDevice(int *d) { *d = 0; return 0; }
Result cuCtxGetLimit(size_t *v, int l) { *v = 0; return 0; }
Result cuCtxSetLimit(int l, size_t v) { return 0; }
Result cuDeviceGet(int *d, int i) { *d = i; return 0; }
Result cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return 0; }
Result cuDeviceGetAttribute(int *v, int attribute, int d) {
    switch (attribute) {
    case 75: *v = 9; break;       /* compute capability, major */
    case 76: *v = 0; break;       /* and minor */
    case 97: *v = 232448; break;  /* shared memory a block, opted in */
    case 81: *v = 233472; break;  /* and a multiprocessor */
    case 8: *v = 49152; break;
    case 16: *v = 132; break;     /* multiprocessors */
    case 10: *v = 32; break;      /* threads a warp */
    default: *v = 1024;
    }
    return 0;
}
Result cuFuncGetAttribute(int *v, int attribute, void *f) { *v = attribute == 0 ? 1024 : 0; return 0; }
Result cuFuncSetAttribute(void *f, int attribute, int v) { return 0; }
Result cuFuncSetCacheConfig(void *f, int c) { return 0; }
Result cuModuleGetFunction(void **f, void *m, const char *name) { *f = (void *)2; return 0; }
Result cuModuleLoadData(void **m, const void *data) { *m = (void *)3; return 0; }
Result cuModuleUnload(void *m) { return 0; }
/* Leaves *p: the pointer itself. */
Result cuPointerGetAttribute(void *p, int attribute, uint64_t q) { return 0; }
Result cuPointerGetAttributes(unsigned n, int *a, void **d, uint64_t p) { return 0; }
Result cuLaunchKernelEx(const void *config, void *f, void **p, void **e) { launches++; return 0; }
Result cuOccupancyMaxActiveClusters(int *n, void *f, const void *c) { *n = 1; return 0; }
Result cuTensorMapEncodeTiled(void) { return 0; }
Result cuTensorMapEncodeIm2col(void) { return 0; }
Result cuStreamSynchronize(void *s) { return 0; }
