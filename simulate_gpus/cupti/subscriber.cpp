// SPDX-License-Identifier: MIT
#include "cupti/subscriber.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cupti/buffers.hpp"
#include "cupti/functions.hpp"
#include "cupti/kinds.hpp"
#include "cupti/profiler.hpp"
#include "runtime/interface.hpp"

// CUPTI's handle is a pointer to this.
struct CUpti_Subscriber_st {
  std::atomic<CUpti_CallbackFunc> function = nullptr;
  std::atomic<void*> data = nullptr;
  std::atomic<unsigned> domains = 0;    // a bit for each
  std::atomic<std::size_t> single = 0;  // how many functions beside these
};

namespace simulate_gpus::cupti {
namespace {

CUpti_Subscriber_st subscriber;

struct SingleFunctions {
  std::mutex mutex;
  std::set<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>> asked_for;
};

SingleFunctions& single_functions() {
  static auto* const functions = new SingleFunctions;
  return *functions;
}

unsigned bit_of_domain(CUpti_CallbackDomain domain) { return 1U << domain; }

bool is_called_back(CUpti_CallbackDomain domain) {
  return domain == CUPTI_CB_DOMAIN_RUNTIME_API || domain == CUPTI_CB_DOMAIN_DRIVER_API;
}

void unsubscribe() {
  const std::scoped_lock lock(single_functions().mutex);
  single_functions().asked_for.clear();
  subscriber.single = 0;
  subscriber.domains = 0;
  subscriber.function = nullptr;
  watch();
}

CUptiResult check_subscription(CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                               const char* function) {
  if (handle != &subscriber || subscriber.function.load() == nullptr)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (is_called_back(domain)) return CUPTI_SUCCESS;
  static_cast<void>(not_offered(std::string(function) + " of domain " + std::to_string(domain)));
  return CUPTI_ERROR_NOT_SUPPORTED;
}

// The end of a program is a call too: Kineto, with TEARDOWN_CUPTI=1, finalizes CUPTI in the next one, and a program that
// makes none would wait for it forever.
void tell_of_end() {
  std::uint64_t data = 0;
  int result = 0;
  const ToldOfCall call{find_function("cudaDeviceSynchronize"), "cudaDeviceSynchronize", 0, &result,
                        &data};
  if (call.function == nullptr) return;
  call_subscriber(CUPTI_API_ENTER, call);
  call_subscriber(CUPTI_API_EXIT, call);
}

}  // namespace

bool is_subscribed(const Function& function) {
  if ((subscriber.domains & bit_of_domain(function.domain)) != 0) return true;
  if (subscriber.single == 0) return false;
  const std::scoped_lock lock(single_functions().mutex);
  return single_functions().asked_for.contains({function.domain, function.id});
}

bool is_any_subscribed() { return subscriber.domains != 0 || subscriber.single > 0; }

void call_subscriber(CUpti_ApiCallbackSite site, const ToldOfCall& call) {
  const auto function = subscriber.function.load();
  if (function == nullptr || !is_subscribed(*call.function)) return;
  CUpti_CallbackData data{};
  data.callbackSite = site;
  data.functionName = call.called;
  data.functionReturnValue = call.result;
  data.correlationId = call.correlation;
  data.correlationData = call.data;
  function(subscriber.data.load(), call.function->domain, call.function->id, &data);
}

}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc function,
                           void* data) {
  if (handle == nullptr || function == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CUpti_CallbackFunc none = nullptr;
  if (!subscriber.function.compare_exchange_strong(none, function))
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscriber.data = data;
  *handle = &subscriber;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  if (handle != &subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  unsubscribe();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableDomain(std::uint32_t is_wanted, CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain) {
  if (const CUptiResult refused = check_subscription(handle, domain, "cuptiEnableDomain"))
    return refused;
  if (is_wanted != 0) {
    // Before the subscriber's static objects are gone.
    [[maybe_unused]] static const int is_told = std::atexit(tell_of_end);
    subscriber.domains |= bit_of_domain(domain);
  } else {
    subscriber.domains &= ~bit_of_domain(domain);
  }
  watch();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(std::uint32_t is_wanted, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  // Kineto always asks for the beginnings and ends of contexts, for ranges, which are refused: nobody is told of any.
  const bool is_of_contexts =
      domain == CUPTI_CB_DOMAIN_RESOURCE && (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED ||
                                             id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  if (is_of_contexts && handle == &subscriber) return CUPTI_SUCCESS;
  if (const CUptiResult refused = check_subscription(handle, domain, "cuptiEnableCallback"))
    return refused;
  const std::scoped_lock lock(single_functions().mutex);
  auto& functions = single_functions().asked_for;
  is_wanted != 0 ? static_cast<void>(functions.insert({domain, id}))
                 : static_cast<void>(functions.erase({domain, id}));
  subscriber.single = functions.size();
  watch();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  unsubscribe();
  disable_all();
  flush();
  return CUPTI_SUCCESS;
}
}
