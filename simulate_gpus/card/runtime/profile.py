"""A chrome trace of a small loop on the card: what Kineto writes for kernels, copies, memsets and waits."""
import sys, gzip, shutil, torch
from torch.profiler import profile, ProfilerActivity, schedule, record_function
out = sys.argv[1]
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4)).cuda()
sgd = torch.optim.SGD(net.parameters(), lr=.01)
host = torch.rand(32, 64).pin_memory(); pageable = torch.rand(32, 64)
side = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph(); x = torch.zeros(8, device="cuda")
with torch.cuda.graph(graph): y = x * 2 + 1
def step():
    with record_function("my step"):
        a = host.to("cuda", non_blocking=True); b = pageable.cuda()
        loss = net(a + b).square().mean(); sgd.zero_grad(); loss.backward(); sgd.step(); loss.item()
        with torch.cuda.stream(side): torch.zeros(1000, device="cuda").cpu()
        e = torch.cuda.Event(); e.record(); side.wait_event(e); torch.cuda.synchronize(); graph.replay(); torch.cuda.synchronize()
        c = torch.empty(100, device="cuda"); c.copy_(torch.ones(100, device="cuda")); c.zero_()
for _ in range(2): step()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, profile_memory=True, with_stack=False) as p:
    step(); step()
p.export_chrome_trace(out + ".json")
with open(out + ".json", "rb") as f, gzip.open(out + ".json.gz", "wb") as g: shutil.copyfileobj(f, g)
print(p.key_averages().table(sort_by="cuda_time_total", row_limit=60, max_name_column_width=60))
