"""Everything a card says about itself: as JSON on stdout."""
import ctypes, json, inspect
import torch
torch.cuda.init()
out = {}
p = torch.cuda.get_device_properties(0)
out["properties"] = {n: str(getattr(p, n)) for n in dir(p) if not n.startswith("_")}
cuda = ctypes.CDLL("libcuda.so.1")
v = ctypes.c_int()
attrs = {}; r = globals().get("r")
for a in range(1, 200):
    if cuda.cuDeviceGetAttribute(ctypes.byref(v), a, 0) == 0: attrs[a] = v.value
out["driver_attributes"] = attrs
import glob, os
import ctypes.util
rt = None
for line in open("/proc/self/maps"):
    if "libcudart" in line: rt = line.split()[-1]; break
r = ctypes.CDLL(rt)
out["cudart"] = os.path.basename(rt)
attrs = {}; r = globals().get("r")
for a in range(1, 200):
    if r.cudaDeviceGetAttribute(ctypes.byref(v), a, 0) == 0: attrs[a] = v.value
r.cudaGetLastError(); out["runtime_attributes"] = attrs
s = ctypes.c_size_t()
out["limits"] = {l: [r.cudaDeviceGetLimit(ctypes.byref(s), l), s.value] for l in range(0, 10)}; r.cudaGetLastError()
lo, hi = ctypes.c_int(), ctypes.c_int()
r.cudaDeviceGetStreamPriorityRange(ctypes.byref(lo), ctypes.byref(hi)); out["priorities"] = [lo.value, hi.value]
r.cudaDriverGetVersion(ctypes.byref(v)); out["driver_version"] = v.value
r.cudaRuntimeGetVersion(ctypes.byref(v)); out["runtime_version"] = v.value
# every error's name and text
r.cudaGetErrorName.restype = r.cudaGetErrorString.restype = ctypes.c_char_p
out["errors"] = {e: [r.cudaGetErrorName(e).decode(), r.cudaGetErrorString(e).decode()] for e in range(0, 1000) if r.cudaGetErrorName(e) != b"unrecognized error code"}; r.cudaGetLastError()
out["mem_get_info"] = torch.cuda.mem_get_info()
x = torch.ones(1, device="cuda"); torch.cuda.synchronize()
out["after_one_tensor"] = torch.cuda.mem_get_info()
y = torch.rand(300, 300, device="cuda"); y @ y; torch.cuda.synchronize()
out["after_one_product"] = torch.cuda.mem_get_info()
out["memory_stats"] = {k: v for k, v in torch.cuda.memory_stats().items() if v}
class Granularity(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("loc_type", ctypes.c_int), ("loc_id", ctypes.c_int), ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]
g = Granularity(1, 0, 1, 0, None)
for o in (0, 1): out[f"granularity_{o}"] = (cuda.cuMemGetAllocationGranularity(ctypes.byref(s), ctypes.byref(g), o), s.value)
try:
    import pynvml
    pynvml.nvmlInit()
    h = pynvml.nvmlDeviceGetHandleByIndex(0)
    nvml = {}
    extra = {"nvmlDeviceGetClockInfo": [(i,) for i in range(4)], "nvmlDeviceGetMaxClockInfo": [(i,) for i in range(4)], "nvmlDeviceGetApplicationsClock": [(0,), (2,)], "nvmlDeviceGetTemperature": [(0,)],
             "nvmlDeviceGetTemperatureThreshold": [(i,) for i in range(6)], "nvmlDeviceGetNvLinkState": [(0,), (17,), (18,)], "nvmlDeviceGetNvLinkVersion": [(0,)], "nvmlDeviceGetComputeRunningProcesses": [()],
             "nvmlDeviceGetEncoderCapacity": [(0,)], "nvmlDeviceGetPcieThroughput": [(0,)], "nvmlDeviceGetTotalEccErrors": [(0, 0), (1, 0)], "nvmlDeviceGetRetiredPages": [(0,)], "nvmlDeviceGetAPIRestriction": [(0,)], "nvmlDeviceGetInforomVersion": [(0,)], "nvmlDeviceGetViolationStatus": [(0,)],
             "nvmlDeviceGetCpuAffinity": [(1,)], "nvmlDeviceGetSupportedGraphicsClocks": [(2619,)], "nvmlDeviceGetFanSpeed_v2": [(0,)], "nvmlDeviceGetFieldValues": [([82, 83, 91, 92, 160, 185, 186, 193],)], "nvmlDeviceGetMaxCustomerBoostClock": [(0,), (1,)], "nvmlDeviceGetClock": [(0, 0), (2, 0)]}
    def plain(x):
        if isinstance(x, (list, tuple)): return [plain(i) for i in x]
        if isinstance(x, ctypes.Structure): return {f[0]: plain(getattr(x, f[0])) for f in x._fields_}
        if isinstance(x, ctypes.Array): return [plain(i) for i in x][:32]
        if isinstance(x, bytes): return x.decode(errors="replace")
        return x if isinstance(x, (int, float, str, type(None))) else str(x)
    for n in sorted(dir(pynvml)):
        f = getattr(pynvml, n)
        if not (n.startswith("nvmlDeviceGet") or n.startswith("nvmlSystemGet")) or not inspect.isfunction(f): continue
        for args in extra.get(n, [()]):
            try: need = len([q for q in inspect.signature(f).parameters.values() if q.default is q.empty])
            except Exception: continue
            call = ((h,) if n.startswith("nvmlDevice") else ()) + args
            if len(call) != need and n not in extra: continue
            try: nvml[f"{n}{args or ''}"] = plain(f(*call))
            except Exception as e: nvml[f"{n}{args or ''}"] = "! " + str(e)
    out["nvml"] = nvml
except Exception as e: out["nvml"] = "! " + repr(e)
print(json.dumps(out, indent=1, default=str))
