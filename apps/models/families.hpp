// The factories behind make_model(). They expect options whose defaults have been filled in.
#pragma once

#include "model.hpp"

namespace actzip::models {

std::shared_ptr<Model> make_resnet(const ModelOptions& options);
std::shared_ptr<Model> make_preact_resnet(const ModelOptions& options);
std::shared_ptr<Model> make_densenet(const ModelOptions& options);
std::shared_ptr<Model> make_gpt(const ModelOptions& options);
std::shared_ptr<Model> make_encoder(const ModelOptions& options);
std::shared_ptr<Model> make_vit(const ModelOptions& options);
std::shared_ptr<Model> make_gcn(const ModelOptions& options);
std::shared_ptr<Model> make_sage(const ModelOptions& options);
std::shared_ptr<Model> make_gat(const ModelOptions& options);

/// Images up to this size get the stem for small images.
inline constexpr std::int64_t kSmallImage = 64;

}  // namespace actzip::models
