// What an action is, from the constants of the Python spec:
//
//   LS_DISCRETE 1   one int for each choice; LS_ACTIONS lists the number of actions of each ("2", or "3, 5, 2")
//   LS_DISCRETE 0   LS_ACTIONS floats
#pragma once
#include "seeds.cuh"

#if LS_DISCRETE

typedef int ActionElement;
DEVICE constexpr int choice_size(int choice) {
    const int sizes[] = {LS_ACTIONS};
    return sizes[choice];
}
DEVICE constexpr int number_of_choices() {
    const int sizes[] = {LS_ACTIONS};
    return sizeof sizes / sizeof *sizes;
}
DEVICE constexpr int sum_of_choices() {
    int sum = 0;
    for (int choice = 0; choice < number_of_choices(); choice++) sum += choice_size(choice);
    return sum;
}
constexpr int ACTION_WIDTH = number_of_choices();

#else

typedef float ActionElement;
constexpr int ACTION_WIDTH = LS_ACTIONS;

#endif
