// SPDX-License-Identifier: MIT
//
// The one subscriber of callbacks: it is called at the beginning and the end of each call that it asks for.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "cupti/functions.hpp"

namespace simulate_gpus::cupti {

bool is_subscribed(const Function& function);
bool is_any_subscribed();

/// What a callback is told of a call.
struct ToldOfCall {
  const Function* function;
  const char* called;
  std::uint32_t correlation;
  int* result;
  std::uint64_t* data;  ///< the subscriber's own, from the beginning of the call to its end
};

/// The subscriber may end its subscription within, and finalize CUPTI: Kineto does.
void call_subscriber(CUpti_ApiCallbackSite site, const ToldOfCall& call);

}  // namespace simulate_gpus::cupti
