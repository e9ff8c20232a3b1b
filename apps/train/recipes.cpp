#include "recipes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "options.hpp"

namespace actzip::train {

namespace {

constexpr std::array kRecipes{
    Recipe{"resnet18-cifar10-division",
           "--model resnet18 --preset division --augment cifar10 --epochs 100 --batch 256 --lr 0.1 --weight-decay 5e-4 "
           "--schedule cosine-by-epoch",
           "CIFAR-10; published: 94.7 % (94.9 in full precision)"},
    Recipe{"resnet164-cifar10-division",
           "--model division-resnet164 --preset division --augment cifar10 --epochs 100 --batch 256 --lr 0.1 "
           "--weight-decay 5e-4 --schedule cosine-by-epoch",
           "CIFAR-10; published: 94.5 % (94.9)"},
    Recipe{"densenet121-cifar100-division",
           "--model densenet121 --preset division --augment cifar100 --epochs 100 --batch 256 --lr 0.1 "
           "--weight-decay 5e-4 --schedule cosine-by-epoch",
           "CIFAR-100; published: 79.5 % (79.8)"},
    Recipe{"resnet164-cifar100-division",
           "--model division-resnet164 --preset division --augment cifar100 --epochs 200 --batch 256 --lr 0.15 "
           "--weight-decay 5e-4 --schedule cosine-by-epoch",
           "CIFAR-100; published: 76.9 % (77.3)"},
    Recipe{"resnet50-imagenet-division",
           "--model resnet50 --preset division --augment imagenet --epochs 120 --batch 256 --lr 0.1 "
           "--weight-decay 1e-4 --schedule cosine-by-epoch",
           "ImageNet, folder or LMDB; published: 75.9 % (76.2)"},
    Recipe{"densenet161-imagenet-division",
           "--model densenet161 --preset division --augment imagenet --epochs 120 --batch 256 --accumulate 2 --lr 0.2 "
           "--weight-decay 1e-4 --schedule cosine-by-epoch",
           "ImageNet, folder or LMDB; published: 77.6 % (77.6)"},
    Recipe{"resnet18-cifar10",
           "--model resnet18 --augment cifar10 --epochs 15 --batch 256 --lr 0.2 --nesterov --weight-decay 5e-4 "
           "--schedule cosine --warm-up 0.2 --amp bf16",
           "CIFAR-10 in 15 epochs"},
    Recipe{"vit-cifar10",
           "--model vit-tiny --augment cifar10 --epochs 60 --batch 256 --optimizer adamw --lr 1e-3 --weight-decay 0.05 "
           "--decay-matrices-only --warm-up 0.1 --label-smoothing 0.1 --clip 1 --amp bf16",
           "CIFAR-10 from scratch"},
    Recipe{"gpt-shakespeare",
           "--model gpt --steps 1000 --batch 64 --length 256 --optimizer adamw --lr 1e-3 --betas 0.9 0.99 "
           "--weight-decay 0.1 --warm-up 0.1 --clip 1 --amp bf16",
           "a text file, by characters; tinyshakespeare: 1.54 nats"},
    Recipe{"encoder-sst2",
           "--model encoder --epochs 4 --batch 256 --length 64 --optimizer adamw --lr 5e-4 --betas 0.9 0.98 "
           "--weight-decay 0.01 --warm-up 0.1 --word-dropout 0.1 --clip 1 --amp bf16",
           "SST-2, a folder with its train and dev files; 91.1 %"},
    Recipe{
        "gcn-cora",
        "--model gcn --epochs 200 --hidden 16 --layers 2 --dropout 0.5 --input-dropout 0.5 --optimizer adam --lr 0.01 "
        "--weight-decay 5e-4 --schedule constant",
        "Cora with the public split"},
    Recipe{"sage-cora",
           "--model sage --epochs 100 --hidden 64 --layers 2 --dropout 0.5 --input-dropout 0.5 --optimizer adam --lr "
           "0.01 --weight-decay 5e-4 --schedule constant",
           "Cora with the public split"},
    Recipe{
        "gat-cora",
        "--model gat --epochs 200 --hidden 64 --heads 8 --layers 2 --dropout 0.6 --input-dropout 0.6 --optimizer adam "
        "--lr 0.005 --weight-decay 5e-4 --schedule constant",
        "Cora with the public split"},
    Recipe{
        "gcn-arxiv",
        "--model gcn --epochs 500 --hidden 256 --layers 3 --dropout 0.5 --norm --optimizer adam --lr 0.01 --schedule "
        "constant --level L2.2 --interval 20 --patience 100",
        "ogbn-arxiv's CSV folder, as GACT trains it"},
};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& find_recipe(std::string_view name) {
  const auto found = std::ranges::find(kRecipes, name, &Recipe::name);
  if (found != kRecipes.end()) return *found;
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  throw WrongUsage(fmt::format("recipe '{}' (allowed: {})", name, fmt::join(names, ", ")));
}

}  // namespace actzip::train
