/* A machine of four GPUs as NVML's functions tell of them (NVML API reference). */
#include <stddef.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, LOST = 15, COUNT = 4 };
enum { BROKEN = 1, MIG = 3 }; /* one whose handle can't be had, one that is cut up */

typedef struct { int index; int lost; } Device;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;

static Device devices[COUNT] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
static int ready;

/* The test's own: let a GPU fall off the bus, or come back. */
void lose(int index, int lost) { devices[index].lost = lost; }

int nvmlInit_v2(void) { ready = 1; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count) { *count = COUNT; return ready ? SUCCESS : LOST; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device)
{
    if (index == BROKEN)
        return NO_PERMISSION;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *use)
{
    if (device->lost)
        return LOST;
    if (device->index == MIG)
        return NOT_SUPPORTED;
    use->gpu = 90 + device->index;
    use->memory = 1;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory)
{
    if (device->lost)
        return LOST;
    memory->total = 150754820096ULL; /* more than 32 bits hold */
    memory->used = 5000000000ULL * (device->index + 1);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned int *milliwatts)
{
    *milliwatts = 700500;
    return device->lost ? LOST : SUCCESS;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned int *degrees)
{
    *degrees = 60 + device->index;
    return device->lost || sensor != 0 ? LOST : SUCCESS;
}
