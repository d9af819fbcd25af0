// Written by tests/test_golden.py, which holds the configuration:
//   env=cartpole
//   seed=7
//   env.max_episode_steps=40
//   policy.hidden=[17,9]
//   policy.shared=true
//   ppo.total_steps=1764
//   ppo.num_envs=7
//   ppo.num_steps=63
//   ppo.num_minibatches=3
//   ppo.update_epochs=2
//   ppo.ent_coef=0.01
//   ppo.learning_rate=0.02
#define LS_OBSERVATION 4
#define LS_HIDDEN 17, 9
#define LS_RELU 0
#define LS_SHARED 1
#define LS_OFFSETS 0, 96, 272, 304
#define LS_LOG_STD -5, 2
#define LS_ACTIONS 2
#define LS_DISCRETE 1
#define LS_STATE 4
#include "../../envs/cartpole.h"

#define RUN "cartpole"
constexpr unsigned long long SEED = 7;
constexpr int NUM_ENVS = 7;
constexpr int NUM_STEPS = 63;
constexpr int NUM_MINIBATCHES = 3;
constexpr int UPDATE_EPOCHS = 2;
constexpr int ITERATIONS = 4;
constexpr int MAX_EPISODE_STEPS = 40;
constexpr int PARAMETERS = 320;
constexpr int PARTITIONS = 4;
constexpr int REDUCTION_BLOCKS = 1;
constexpr double LOG_STD_INIT = 0.0;
constexpr double LEARNING_RATE = 0.02;
constexpr double GAMMA = 0.98;
constexpr double GAE_LAMBDA = 0.9;
constexpr double CLIP_COEF = 0.2;
constexpr double ENT_COEF = 0.01;
constexpr double VF_COEF = 0.5;
constexpr double MAX_GRAD_NORM = 0.5;
constexpr double BETA1 = 0.9;
constexpr double BETA2 = 0.999;
constexpr double EPSILON = 1e-05;
constexpr bool ANNEAL_LR = true;
constexpr char INITIAL_PARAMS_SHA256[] = "8818c5085b09adccd2d9d58e3c08c6ba72c2f64e7cb705ee6351bc51833601cc";
constexpr char PARAMS_SHA256[] = "133377f9974e76f04f45f91455eb8752123356de4f5fc94d817cd77bd87781b3";
#include "training.h"
