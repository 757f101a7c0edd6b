// SPDX-License-Identifier: MIT
//
// Memory of three dimensions: rows in layers. Whole layers that follow each other are one copy or memory set of rows, else each
// layer is one. CUDA's arrays are not offered.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "errors.hpp"
#include "interface.hpp"

using namespace simulate_gpus;

namespace {

// A part of memory of rows in layers.
struct Volume {
  char* first;
  std::size_t pitch, rows_of_layer;

  [[nodiscard]] char* layer(std::size_t z) const { return first + z * pitch * rows_of_layer; }
};

Volume volume_at(const cudaPitchedPtr& memory, const cudaPos& place) {
  auto* const begin = static_cast<char*>(memory.ptr);
  return {begin + (place.z * memory.ysize + place.y) * memory.pitch + place.x, memory.pitch,
          memory.ysize};
}

// Whether each row lies in one row of the memory and, where there are several, each layer in one layer.
bool holds(const cudaPitchedPtr& memory, const cudaPos& place, const cudaExtent& extent) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return true;
  const auto fits = [](std::size_t begin, std::size_t count, std::size_t most) {
    return count <= most && begin <= most - count;
  };
  return fits(place.x, extent.width, memory.pitch) && extent.height <= SIZE_MAX / extent.depth &&
         (extent.depth == 1 || fits(place.y, extent.height, memory.ysize));
}

// `act` is given where a run of rows begins, by its layer, and how many rows it has.
template <class Act>
cudaError_t for_each_run(const cudaExtent& extent, bool is_whole, const Act& act) {
  const std::size_t layers = is_whole ? 1 : extent.depth;
  const std::size_t rows = is_whole ? extent.height * extent.depth : extent.height;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (const cudaError_t failed = act(layer, rows)) return failed;
  }
  return cudaSuccess;
}

template <class Copy>
cudaError_t copy_volume(const cudaMemcpy3DParms& wanted, const Copy& copy) {
  if (wanted.srcArray != nullptr || wanted.dstArray != nullptr)
    return fail(cudaErrorNotSupported, not_offered("cudaMemcpy3D of an array"));
  const Volume from = volume_at(wanted.srcPtr, wanted.srcPos);
  const Volume to = volume_at(wanted.dstPtr, wanted.dstPos);
  const cudaExtent& extent = wanted.extent;
  const bool is_whole = from.rows_of_layer == extent.height && to.rows_of_layer == extent.height;
  if (!holds(wanted.srcPtr, wanted.srcPos, extent) || !holds(wanted.dstPtr, wanted.dstPos, extent))
    return fail(cudaErrorInvalidValue);
  return for_each_run(extent, is_whole, [&](std::size_t layer, std::size_t rows) {
    return copy(to.layer(layer), to.pitch, from.layer(layer), from.pitch, extent.width, rows);
  });
}

template <class Set>
cudaError_t set_volume(const cudaPitchedPtr& memory, const cudaExtent& extent, const Set& set) {
  const Volume all = volume_at(memory, {});
  if (!holds(memory, {}, extent)) return fail(cudaErrorInvalidValue);
  return for_each_run(extent, all.rows_of_layer == extent.height,
                      [&](std::size_t layer, std::size_t rows) {
                        return set(all.layer(layer), all.pitch, extent.width, rows);
                      });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, memory);
  if (extent.depth > 0 && extent.height > SIZE_MAX / extent.depth)
    return fail(cudaErrorMemoryAllocation);
  void* address = nullptr;
  std::size_t pitch = 0;
  const cudaError_t failed =
      cudaMallocPitch(&address, &pitch, extent.width, extent.height * extent.depth);
  if (failed == cudaSuccess) *memory = {address, pitch, extent.width, extent.height};
  return failed;
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr memory, int value, cudaExtent extent,
                              cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return set_volume(memory, extent,
                    [&](char* place, std::size_t pitch, std::size_t width, std::size_t rows) {
                      return cudaMemset2DAsync(place, pitch, value, width, rows, stream);
                    });
}

cudaError_t cudaMemset3D(cudaPitchedPtr memory, int value, cudaExtent extent) {
  SIMULATE_GPUS_ENTER();
  return set_volume(memory, extent,
                    [&](char* place, std::size_t pitch, std::size_t width, std::size_t rows) {
                      return cudaMemset2D(place, pitch, value, width, rows);
                    });
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* wanted, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, wanted);
  return copy_volume(*wanted, [&](char* to, std::size_t to_pitch, const char* from,
                                  std::size_t from_pitch, std::size_t width, std::size_t rows) {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, wanted->kind, stream);
  });
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* wanted) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, wanted);
  return copy_volume(*wanted, [&](char* to, std::size_t to_pitch, const char* from,
                                  std::size_t from_pitch, std::size_t width, std::size_t rows) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, wanted->kind);
  });
}
}
