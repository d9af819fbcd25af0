// Written by tests/test_golden.py, which holds the configuration:
//   env=pendulum
//   seed=8
//   env.max_episode_steps=25
//   policy.hidden=[9]
//   policy.activation=relu
//   policy.log_std_init=-0.5
//   ppo.total_steps=1323
//   ppo.num_envs=7
//   ppo.num_steps=63
//   ppo.num_minibatches=3
//   ppo.update_epochs=2
//   ppo.anneal_lr=false
#define LS_OBSERVATION 3
#define LS_HIDDEN 9
#define LS_RELU 1
#define LS_SHARED 0
#define LS_OFFSETS 16, 64, 80, 128, 0
#define LS_LOG_STD -5, 2
#define LS_ACTIONS 1
#define LS_DISCRETE 0
#define LS_STATE 2
#include "../../envs/pendulum.h"

#define RUN "pendulum"
constexpr unsigned long long SEED = 8;
constexpr int NUM_ENVS = 7;
constexpr int NUM_STEPS = 63;
constexpr int NUM_MINIBATCHES = 3;
constexpr int UPDATE_EPOCHS = 2;
constexpr int ITERATIONS = 3;
constexpr int MAX_EPISODE_STEPS = 25;
constexpr int PARAMETERS = 144;
constexpr int PARTITIONS = 4;
constexpr int REDUCTION_BLOCKS = 1;
constexpr double LOG_STD_INIT = -0.5;
constexpr double LEARNING_RATE = 0.001;
constexpr double GAMMA = 0.9;
constexpr double GAE_LAMBDA = 0.95;
constexpr double CLIP_COEF = 0.2;
constexpr double ENT_COEF = 0.0;
constexpr double VF_COEF = 0.5;
constexpr double MAX_GRAD_NORM = 0.5;
constexpr double BETA1 = 0.9;
constexpr double BETA2 = 0.999;
constexpr double EPSILON = 1e-05;
constexpr bool ANNEAL_LR = false;
constexpr float ACTION_LOW[] = {-2.0};
constexpr float ACTION_HIGH[] = {2.0};
constexpr char INITIAL_PARAMS_SHA256[] = "dc116eb6ea1c5f664ff2b5fb893c2e6f83cb8b0fc609598fbfc8888428f900a3";
constexpr char PARAMS_SHA256[] = "ec845c1e0a5d6016a43280fdbc18604480387ada45895c8a1a145edc0578456e";
#include "training.h"
